//! The main job, live in a terminal.
