"""Who hears of one process, and how far behind each is. Keeps nothing of what was said."""

from collections.abc import Callable

from ipc import client as c
from pie_cli.engine.clients import Client
from pie_cli.engine.quotas import MAX_UNSHOWN
from pie_cli.engine.record import weight_of

Tell = Callable[[Client, c.FromHub], bool]


class View:
    """One connection's. `output_alone`: it follows the log."""

    def __init__(self, client: Client, output_alone: bool) -> None:
        self.client, self.output_alone = client, output_alone
        self.unshown = 0  # of what it was told, and has not dealt with


class Views:
    """The views of one process. One that is too far behind holds up the process."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._views: dict[Client, View] = {}

    def __len__(self) -> int:
        return len(self._views)

    @property
    def is_behind(self) -> bool:
        return any(view.unshown > MAX_UNSHOWN for view in self._views.values())

    def add(self, client: Client, *, output_alone: bool = False) -> None:
        """One that hears of it already hears of as much as before, at least."""
        view = self._views.setdefault(client, View(client, output_alone))
        view.output_alone = view.output_alone and output_alone

    def remove(self, client: Client) -> None:
        self._views.pop(client, None)

    def tell(self, message: c.FromHub) -> None:
        """An event, to all that hear of such."""
        for view in list(self._views.values()):
            if view.output_alone and not isinstance(message, c.Printed | c.Returned | c.Error):
                continue
            self._tell_one(view, message)

    def tell_one(self, client: Client, message: c.FromHub) -> None:
        if view := self._views.get(client):
            self._tell_one(view, message)

    def shown(self, client: Client, size: int) -> None:
        if view := self._views.get(client):
            view.unshown -= size

    def _tell_one(self, view: View, message: c.FromHub) -> None:
        if self._tell(view.client, message):
            view.unshown += weight_of(message)
        else:  # gone
            del self._views[view.client]
