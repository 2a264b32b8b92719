//! The append-only file: segments, manifest, writer, replay.
