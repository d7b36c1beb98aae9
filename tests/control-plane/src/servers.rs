//! The command lines of the two servers: which flags, and why.
//!
//! In: the paths of the programs, a directory, a port, the caller's extras. Out: [`Server`], a command line that the
//! guardian runs. [`Layout`] names the paths inside the directory.

mod apiserver;
mod command;
mod etcd;
mod layout;

pub(crate) use apiserver::{Apiserver, NAME as APISERVER};
pub(crate) use command::Server;
pub(crate) use etcd::{NAME as ETCD, etcd};
pub(crate) use layout::Layout;
