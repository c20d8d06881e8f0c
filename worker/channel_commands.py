"""Commands that concern one channel. Puts are immediate; a change of a cell keeps its turn."""

from __future__ import annotations

from ipc import messages as m
from ipc.errors import ErrorCode
from ipc.types import MAX_CAPACITY
from worker import holding, passes
from worker.admission import add, check_queued, get
from worker.definitions import Channel
from worker.state import CellChange, Fire, Process, State
from worker.violation import Violation


def define_channel(state: State, process: Process, command: m.DefineChannel) -> None:
    cell, capacity = command.cell, command.capacity
    passes.check_type(cell)
    if not 1 <= capacity <= MAX_CAPACITY:
        raise Violation(f"channel {command.channel} has capacity {capacity}")
    ring = capacity + state.config.run_ahead_window
    _charge(process, ring * cell.nbytes)
    channel = Channel(command.channel, cell, capacity, ring, base=-1)
    add(process.channels, "channel", command.channel, channel)
    channel.base = state.rings.allocate(cell, ring)
    process.live_channels.add(channel)


def _charge(process: Process, nbytes: int) -> None:
    limit = process.limits.channels
    if process.channel_bytes + nbytes > limit:
        raise Violation(f"the channels take more than {limit} bytes", ErrorCode.LIMIT, "channels")
    process.channel_bytes += nbytes


def put(state: State, process: Process, command: m.Put) -> None:
    channel = get(process.channels, "channel", command.channel)
    passes.check_cell(channel, command.data, state.model.output_vocab_size)
    held = channel.held + len(channel.backlog)
    if held >= channel.capacity + channel.accepted_pops:
        if channel.pipeline is not None and channel.pipeline.failed:
            return  # it counted on a fire whose failure the host does not know yet
        raise Violation(f"channel {channel.number} is full")
    if held < channel.capacity:
        state.rings.write(channel.cell, channel.back, command.data)
        channel.written += 1
    else:
        _charge(process, channel.cell.nbytes)
        channel.backlog.append(command.data)


def set_cell(state: State, process: Process, command: m.SetCell) -> None:
    channel: Channel = get(process.channels, "channel", command.channel)
    passes.check_cell(channel, command.data, state.model.output_vocab_size)
    if channel.held + len(channel.backlog) <= channel.accepted_pops:
        raise Violation(f"channel {channel.number} has no cell to replace")
    pipeline = channel.pipeline
    queue = pipeline.queue if pipeline is not None else ()
    if not any(isinstance(item, Fire | CellChange) for item in queue):
        state.rings.write(channel.cell, channel.front, command.data)
        return
    # Accepted fires keep the old cell: the change waits behind them. A run does not count: the
    # host changes a cell only when all fires that it has allowed are delivered.
    check_queued(process)
    _charge(process, len(command.data))
    channel.uses += 1
    holding.queue_item(state, pipeline, CellChange(channel, command.data))


def watch(state: State, process: Process, command: m.Watch) -> None:
    channel: Channel = get(process.channels, "channel", command.channel)
    state.retire()  # cells of fires that the host has not heard of would come before them
    channel.watched = True
    if channel.held:
        indices = [channel.base + n % channel.ring for n in range(channel.taken, channel.written)]
        channel.taken = channel.written
        cells = state.rings.read(channel.cell, indices)
        state.emit(process, m.Cells(channel.number, tuple(cells)))


def drop_channel(state: State, process: Process, command: m.DropChannel) -> None:
    channel = get(process.channels, "channel", command.channel)
    del process.channels[command.channel]
    channel.dropped = True
    holding.free_channel_if_unused(state, process, channel)
