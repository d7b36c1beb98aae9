//! Rules of the workspace that a machine checks.
