"""The inferlet's side of its one descriptor: start, frames, handles, accounting, awaiting."""
