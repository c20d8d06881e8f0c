"""`--engine` and `--key` before the verb, or after one that asks an engine. Imports nothing
without them."""

NAMES = {"--engine": "engine.address", "--key": "engine.key"}
#: Those that take them after the verb, too; `run` reads its own.
VERBS = {"ps", "attach", "send", "logs", "trace", "kill", "stop", "serve", "bench", "models", "key"}


def take_engine(arguments: list[str]) -> list[str]:
    """The arguments without them; what they say is a setting from now on. A flag without a value
    is left, for who parses the rest."""
    while arguments and _takes(arguments):
        arguments = arguments[_take(arguments) :]
    if not arguments or arguments[0] not in VERBS:
        return arguments
    kept = []
    while arguments and arguments[0] != "--":
        num_taken = _take(arguments) if _takes(arguments) else 0
        kept += [] if num_taken else arguments[:1]
        arguments = arguments[num_taken or 1 :]
    return kept + arguments


def refuse_missing(arguments: list[str]) -> None:
    """What is left is a flag without its value: UsageError."""
    if len(arguments) > 1 and arguments[0] in VERBS and arguments[-1] in NAMES:
        from pie_cli.usage import UsageError

        raise UsageError(f"`{arguments[-1]}` needs a value", "`pie --help` says which")


def _takes(arguments: list[str]) -> bool:
    """Whether the first is such a flag, and has a value."""
    flag, equals, _ = arguments[0].partition("=")
    return flag in NAMES and (bool(equals) or len(arguments) > 1)


def _take(arguments: list[str]) -> int:
    """Keep what the flag says; how many words it takes."""
    from pie_cli.config import FLAGS

    flag, equals, value = arguments[0].partition("=")
    FLAGS[NAMES[flag]] = value if equals else arguments[1]
    return 1 if equals else 2
