"""The contract between `pie`'s processes: types, messages, frames. Owns no behaviour and no state."""
