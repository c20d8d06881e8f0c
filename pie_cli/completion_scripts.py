"""`pie completion` and `pie --install-completion`: what shells need to ask `completion.py`."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from pie_cli.output import note
from pie_cli.settings import ROOT
from pie_cli.usage import UsageError

BASH = """# Completion of pie for bash.
_pie_complete() {
    local IFS=$'\\n' reply
    reply=($("$1" __complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
    COMPREPLY=()
    case ${reply[0]} in
        files) compopt -o default ;;
        folders) compopt -o dirnames ;;
        words)
            COMPREPLY=("${reply[@]:1}")
            [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
            ;;
    esac
}
complete -F _pie_complete pie
"""

ZSH = """#compdef pie
# Completion of pie for zsh.
_pie() {
    local -a reply
    reply=("${(@f)$("${words[1]}" __complete $((CURRENT - 1)) "${words[@]}" 2>/dev/null)}")
    case ${reply[1]} in
        files) _files ;;
        folders) _files -/ ;;
        words) compadd -- "${(@)reply[2,-1]}" ;;
    esac
}
if ! whence compdef >/dev/null; then
    autoload -Uz compinit && compinit
fi
compdef _pie pie
"""

FISH = """# Completion of pie for fish.
function __pie_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l reply ($words[1] __complete (count $words) $words "$current" 2>/dev/null)
    switch "$reply[1]"
        case files
            __fish_complete_path "$current"
        case folders
            __fish_complete_directories "$current" ''
        case words
            printf '%s\\n' $reply[2..-1]
    end
end
complete -c pie -f -a '(__pie_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[
        str | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish; this one by default.")
    ] = None,
) -> int:
    """Print the completion script of a shell."""
    print(SCRIPTS[known(shell or current_shell())], end="")
    return 0


def install(shell: str) -> None:
    """Set completion up for good; says what it did. Raises UsageError."""
    shell = known(shell)
    if shell == "fish":
        base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        file = base / "fish/completions/pie.fish"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
        file = base / f"pie/completion.{shell}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SCRIPTS[shell], encoding="utf-8")
    note(f"wrote {file}")
    if shell != "fish":
        folder = os.environ.get("ZDOTDIR") or "~" if shell == "zsh" else "~"
        _add_line(Path(folder).expanduser() / f".{shell}rc", f"source '{file}'")
    note("new shells complete `pie`")
    if shutil.which("pie") is None:
        place = f"ln -s '{ROOT / 'pie'}' ~/.local/bin/pie"
        note(f"but `pie` is not on the PATH yet: `{place}` puts it there, where PATH has that folder")


def _add_line(file: Path, line: str) -> None:
    """At the end of the file, once."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    if line in text.splitlines():
        return
    with file.open("a", encoding="utf-8") as output:
        output.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
    note(f"added a line to {file}")


def known(shell: str) -> str:
    if shell not in SCRIPTS:
        what = f"`{shell}`" if shell else "this shell"
        raise UsageError(f"no completion for {what}", f"there is one for {', '.join(SCRIPTS)}")
    return shell


def current_shell() -> str:
    """The shell that started this process, else the user's; "" when neither is known."""
    pid = os.getppid()
    for _ in range(4):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name in SCRIPTS:
                return name
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return os.path.basename(os.environ.get("SHELL", ""))


def on_install(value: bool) -> None:
    """The option of `pie` itself."""
    if value:
        install(current_shell())
        sys.stdout.flush()
        raise typer.Exit(0)
