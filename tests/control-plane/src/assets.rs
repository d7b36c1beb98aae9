//! Where the programs come from. The two servers: `KUBEBUILDER_ASSETS`, else `PATH`, else built once into a cache, of the
//! minor that `KUBERNETES_MINOR` names. What a cluster of machines needs besides is always built.
//!
//! In: the environment. Out: programs to run. [`build`] builds them, and [`cache`] lets several processes share one
//! build.

mod build;
mod cache;
mod recipe;

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use recipe::Recipe;
use rustix::fs::{Access, access};

const VARIABLE: &str = "KUBEBUILDER_ASSETS";
const ETCD: &str = "etcd";
const APISERVER: &str = "kube-apiserver";

/// The programs of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assets {
    /// The program `etcd`.
    pub etcd: PathBuf,
    /// The program `kube-apiserver`.
    pub apiserver: PathBuf,
}

impl Assets {
    /// Finds the programs, and builds them if they are nowhere: minutes, once per machine, with progress on standard
    /// error. Blocks. Any number of processes may call this at once; one builds and the others wait.
    ///
    /// # Errors
    /// `KUBEBUILDER_ASSETS` names a directory without them, `KUBERNETES_MINOR` a minor that is not pinned, or building
    /// them fails.
    pub fn find() -> Result<Self> {
        let installed = Self::installed(env::var_os(VARIABLE).as_deref(), env::var_os("PATH").as_deref())?;
        if let Some(installed) = installed {
            return Ok(installed);
        }
        let built = cache::find_or_build(&Recipe::servers()?)?;
        Self::in_dir(&built).with_context(|| format!("{} is damaged: remove it", built.display()))
    }

    /// The folder with the other programs of a cluster of machines: kubelet, kube-proxy, kube-controller-manager,
    /// kube-scheduler, kubectl and CNI plugins. Builds them like [`find`](Self::find), which takes about five minutes.
    ///
    /// # Errors
    /// Building them fails.
    pub fn machines() -> Result<PathBuf> {
        cache::find_or_build(&Recipe::MACHINES)
    }

    /// The folder with `coredns`, the DNS of a cluster of machines.
    ///
    /// # Errors
    /// Building it fails.
    pub fn dns() -> Result<PathBuf> {
        cache::find_or_build(&Recipe::DNS)
    }

    /// The folder with Kubernetes' own tests of a cluster: `e2e.test`, `ginkgo` and `agnhost`.
    ///
    /// # Errors
    /// Building them fails.
    pub fn e2e() -> Result<PathBuf> {
        cache::find_or_build(&Recipe::E2E)
    }

    /// The installed programs. A variable that is set always wins over `PATH`.
    fn installed(variable: Option<&OsStr>, path: Option<&OsStr>) -> Result<Option<Self>> {
        if let Some(dir) = variable.filter(|dir| !dir.is_empty()) {
            return Self::in_dir(Path::new(dir)).map(Some);
        }
        let on_path =
            |program: &str| env::split_paths(path?).map(|dir| dir.join(program)).find(|file| runs(file));
        Ok(on_path(ETCD).zip(on_path(APISERVER)).map(|(etcd, apiserver)| Self { etcd, apiserver }))
    }

    fn in_dir(dir: &Path) -> Result<Self> {
        let assets = Self { etcd: dir.join(ETCD), apiserver: dir.join(APISERVER) };
        for program in [&assets.etcd, &assets.apiserver] {
            ensure!(
                runs(program),
                "{VARIABLE} is {}, but {} is no program: put etcd and kube-apiserver there, or unset the variable \
                 to have them built",
                dir.display(),
                program.display()
            );
        }
        Ok(assets)
    }
}

fn runs(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use tempfile::TempDir;

    use super::*;

    fn dir_with(programs: &[&str]) -> TempDir {
        let dir = TempDir::new().unwrap();
        for program in programs {
            let file = dir.path().join(program);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    #[test]
    fn the_variable_comes_before_the_path() {
        let (chosen, other) = (dir_with(&[ETCD, APISERVER]), dir_with(&[ETCD, APISERVER]));
        let found = Assets::installed(Some(chosen.path().as_os_str()), Some(other.path().as_os_str()));
        assert_eq!(found.unwrap().unwrap().etcd, chosen.path().join(ETCD));
    }

    #[test]
    fn a_variable_that_names_half_a_set_is_an_error_that_says_which_half() {
        let dir = dir_with(&[ETCD]);
        let error = Assets::installed(Some(dir.path().as_os_str()), None).unwrap_err().to_string();
        assert!(error.contains("kube-apiserver is no program"), "{error}");
    }

    #[test]
    fn the_two_may_lie_in_two_folders_of_the_path() {
        let (one, two) = (dir_with(&[ETCD]), dir_with(&[APISERVER]));
        let path = env::join_paths([one.path(), two.path()]).unwrap();
        let found = Assets::installed(None, Some(&path)).unwrap().unwrap();
        assert_eq!(found, Assets { etcd: one.path().join(ETCD), apiserver: two.path().join(APISERVER) });
    }

    #[test]
    fn half_a_set_on_the_path_is_not_used() {
        let dir = dir_with(&[APISERVER]);
        assert_eq!(Assets::installed(Some(OsStr::new("")), Some(dir.path().as_os_str())).unwrap(), None);
    }
}
