"""`--engine` and `--key` before the verb, for every verb. Imports nothing without them."""

NAMES = {"--engine": "engine.address", "--key": "engine.key"}


def take_engine(arguments: list[str]) -> list[str]:
    """The arguments without them; what they say is a setting from now on."""
    while arguments:
        flag, equals, value = arguments[0].partition("=")
        if flag not in NAMES or not (equals or len(arguments) > 1):
            break
        from pie_cli.config import FLAGS

        FLAGS[NAMES[flag]] = value if equals else arguments[1]
        arguments = arguments[1 if equals else 2 :]
    return arguments
