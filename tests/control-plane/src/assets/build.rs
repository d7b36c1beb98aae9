//! Runs `go build` and shows progress.

use std::{
    fs,
    fs::File,
    io::{ErrorKind, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};

use super::recipe::Recipe;

const LOOK_AGAIN: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(5);
const MODULE_FOLDER: &str = "module";
const LOG: &str = "build.log";

/// Builds the programs into `dir`.
///
/// `lock` becomes the standard input of `go`, which does not read it. So `go` holds the lock while it lives, even if
/// this process is killed, and two builds never write into one directory.
pub(super) fn build(recipe: &Recipe, dir: &Path, lock: &File) -> Result<()> {
    let module = dir.join(MODULE_FOLDER);
    fs::create_dir(&module)
        .and_then(|()| recipe.sources.iter().try_for_each(|(name, text)| fs::write(module.join(name), text)))
        .with_context(|| format!("cannot write the modules to {}", module.display()))?;
    let log = dir.join(LOG);
    let mut progress = Progress::new(format!(
        "building {} from Go modules (once per machine; usually 3 to 10 minutes)",
        recipe.description()
    ));
    progress.say();
    // A folder that is there, as its name says: `go test -c` would take another for a file.
    for arguments in recipe.runs(&format!("{}/", dir.display())) {
        let mut go = start_go(recipe, &arguments, &module, &log, lock)?;
        wait(&mut progress, &mut go, &log)?;
    }
    progress.say();
    for (built, name) in recipe.renamed {
        fs::rename(dir.join(built), dir.join(name)).with_context(|| format!("go build left no {name}"))?;
    }
    fs::remove_dir_all(&module).with_context(|| format!("cannot remove {}", module.display()))
}

fn start_go(recipe: &Recipe, arguments: &[String], module: &Path, log: &Path, lock: &File) -> Result<Child> {
    let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let go = Command::new("go")
        .args(arguments)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        // The programs run on this machine, whatever else this environment builds.
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .stdin(Stdio::from(lock.try_clone().context("cannot hand on the lock")?))
        .stdout(log.try_clone().context("cannot share the build log")?)
        .stderr(log)
        .spawn();
    go.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{} are needed and `go` is not there to build them: install Go 1.26 or newer; for etcd and kube-apiserver \
             alone, KUBEBUILDER_ASSETS may name a folder that holds them",
            recipe.description()
        ),
        _ => anyhow!(error).context("cannot run go"),
    })
}

fn wait(progress: &mut Progress, go: &mut Child, log: &Path) -> Result<()> {
    let status = loop {
        if let Some(status) = go.try_wait().context("cannot wait for go")? {
            break status;
        }
        progress.tick();
        thread::sleep(LOOK_AGAIN);
    };
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        bail!("go ended with {status}; it said:\n{text}");
    }
    Ok(())
}

/// Prints a line to standard error now and then. Directly to the stream: a test runner that captures output would
/// leave people in the dark for minutes.
pub(super) struct Progress {
    what: String,
    since: Instant,
    last: Instant,
}

impl Progress {
    pub(super) fn new(what: String) -> Self {
        let now = Instant::now();
        Self { what, since: now, last: now }
    }

    pub(super) fn tick(&mut self) {
        if self.last.elapsed() >= LINE_EVERY {
            self.say();
        }
    }

    fn say(&mut self) {
        self.last = Instant::now();
        let elapsed = self.since.elapsed().as_secs();
        // If nobody reads it, nobody misses it.
        let _ = writeln!(std::io::stderr(), "control-plane: {}, {elapsed} s", self.what);
    }
}
