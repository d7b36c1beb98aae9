//! The Unix socket: in a directory that nobody else can enter, at a path that nobody else uses, removed at
//! the end.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};
use tokio::{task, time};

use super::error::ServeError;
use crate::options::Endpoint;

/// Forbidden: write access for the group, any access for others.
const FORBIDDEN: u32 = 0o027;
const DIRECTORY_MODE: u32 = 0o700;
const SETGID: u32 = 0o2000;
/// Of a directory made in one that hands its group on, as a volume with Kubernetes' fsGroup does: whoever has the group
/// may call.
const SHARED_MODE: u32 = SETGID | 0o750;
const SOCKET_MODE: u32 = 0o660;
/// A process that takes longer to accept a connection hangs, but exists: its socket is in use.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The file of a socket, removed on drop unless another one has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the socket's file stays");
        }
    }
}

/// Opens the socket at a path; replaces a stale one, but not one that answers.
pub(super) async fn open(path: &Path) -> Result<(UnixListener, SocketFile), ServeError> {
    let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
    let prepare = move || prepare(&directory);
    // Held until the socket exists: of two processes that start at once, the second sees the first one's
    // socket.
    let _lock =
        task::spawn_blocking(prepare).await.map_err(|lost| listen(path, io::Error::other(lost)))??;
    remove_stale(path).await?;
    let listener = UnixListener::bind(path).map_err(|source| listen(path, source))?;
    let inode = inode(path).map_err(|source| listen(path, source))?;
    let file = SocketFile { path: path.to_owned(), inode };
    fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(|source| listen(path, source))?;
    Ok((listener, file))
}

fn listen(path: &Path, source: io::Error) -> ServeError {
    ServeError::Listen { endpoint: Endpoint::Unix(path.to_owned()), source }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Creates the directory if it is missing, checks it, and locks it.
fn prepare(directory: &Path) -> Result<File, ServeError> {
    let fault = |source| ServeError::Directory { directory: directory.to_owned(), source };
    create(directory).map_err(fault)?;
    let open = File::open(directory).map_err(fault)?;
    let found = open.metadata().map_err(fault)?;
    let mode = found.mode() & 0o7777;
    if mode & FORBIDDEN != 0 {
        return Err(ServeError::DirectoryMode { directory: directory.to_owned(), mode });
    }
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own && found.uid() != 0 {
        return Err(ServeError::DirectoryOwner { directory: directory.to_owned(), owner: found.uid(), own });
    }
    flock(&open, FlockOperation::LockExclusive).map_err(|errno| fault(errno.into()))?;
    Ok(open)
}

fn create(directory: &Path) -> io::Result<()> {
    if directory.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    if fs::metadata(directory)?.mode() & SETGID == 0 {
        return Ok(());
    }
    fs::set_permissions(directory, Permissions::from_mode(SHARED_MODE))
}

/// Removes the file of a socket on which nothing listens.
async fn remove_stale(path: &Path) -> Result<(), ServeError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(listen(path, source)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ServeError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match time::timeout(ANSWER_WITHIN, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "removing a stale socket");
            fs::remove_file(path).map_err(|source| listen(path, source))
        }
        Ok(Err(source)) if source.kind() == ErrorKind::PermissionDenied => Err(listen(path, source)),
        // It answers, or is too busy to: either way it is in use.
        _ => Err(ServeError::InUse { path: path.to_owned() }),
    }
}
