"""Stable error codes and the wire form of a failure. A code is never reused."""

import enum

import msgspec


class ErrorCode(enum.IntEnum):
    """Why a fire, a command or a launch failed."""

    INVALID_COMMAND = 1  # the inferlet broke the protocol: its process ends
    TOKEN_RANGE = 2  # a device-made token id outside the vocabulary
    CONTEXT_LENGTH = 3  # a position beyond the model's context
    OUT_OF_MEMORY = 4  # the pool can never hold it, or memory is exhausted for good
    PROGRAM_FAULT = 5  # a kernel raised
    LIMIT = 6  # a limit of the process
    WORKER_LOST = 7
    EMPTY_CHANNEL = 8
    FULL_CHANNEL = 9
    GEOMETRY = 10  # rows that break a rule of placement, or a mask or readout that does not fit


class Failure(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What went wrong, and where: the stage and node let the SDK name the user's source line."""

    code: ErrorCode
    message: str
    stage: str = ""  # "prologue" | "epilogue" | "" when it was not in a stage
    node: int = -1
    limit: str = ""  # of LIMIT: which one of the process, by its key in types.Limits
    ports: tuple[str, ...] = ()  # of GEOMETRY: whose values broke the rule, by their names


class ProtocolError(Exception):
    """Bytes from a peer that are not a legal frame or message. The peer is dropped."""
