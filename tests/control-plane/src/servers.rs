//! The two servers as command lines: which flags, and why those.
//!
//! In: where the binaries are, a folder, a port, the caller's extras. Out: [`Server`], a command line that the guardian
//! runs. Paths inside the folder are named once, in [`Layout`].

mod apiserver;
mod command;
mod etcd;
mod layout;

pub(crate) use apiserver::{Apiserver, NAME as APISERVER};
pub(crate) use command::Server;
pub(crate) use etcd::{NAME as ETCD, etcd};
pub(crate) use layout::Layout;
