//! `cargo demo`: builds what the demo needs, shows progress in one line, and becomes the demo.
#![allow(clippy::print_stderr, reason = "answers to the person at the command line")]

use std::{
    env,
    error::Error,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use programs::cargo;

const PROGRAMS: [&str; 4] = ["control-plane", "provider-mock", "ccm-host", "demo"];
const TICK: Duration = Duration::from_millis(200);
/// A start that needs no build prints nothing.
const SILENT: Duration = Duration::from_secs(1);
/// Fits every terminal.
const WIDTH: usize = 79;

fn main() -> ExitCode {
    match start() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<std::convert::Infallible, Box<dyn Error>> {
    let folder = env::current_exe()?.parent().map(ToOwned::to_owned).unwrap_or_default();
    let mut build = cargo();
    build.arg("build").args(PROGRAMS.iter().flat_map(|name| ["--bin", name]));
    follow(build, "Building the programs (3 to 6 minutes the first time)", |line| line.trim())?;
    let mut servers = Command::new(folder.join("control-plane"));
    servers.arg("build");
    follow(servers, "Building etcd and kube-apiserver (once, 3 to 10 minutes)", |_| "")?;
    Err(Command::new(folder.join("demo")).args(env::args_os().skip(1)).exec().into())
}

/// Runs a step to its end, and shows how long it has taken, with details from the last line of its standard error.
fn follow(mut step: Command, what: &str, detail: fn(&str) -> &str) -> Result<(), Box<dyn Error>> {
    let mut running = step.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let (lines, said) = mpsc::channel();
    if let Some(errors) = running.stderr.take() {
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // An error means that nobody listens any more: the process is ending.
                let _ = lines.send(line);
            }
        });
    }
    let (begun, mut all, mut shown) = (Instant::now(), Vec::new(), Shown::new());
    loop {
        match said.recv_timeout(TICK) {
            Ok(line) => all.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if begun.elapsed() > SILENT {
            shown.show(what, begun.elapsed(), all.last().map_or("", |line| detail(line)));
        }
    }
    shown.erase();
    let status = running.wait()?;
    if status.success() {
        return Ok(());
    }
    let program = step.get_program().display();
    Err(format!("{program} ended with {status}; it said:\n{}", all.join("\n")).into())
}

/// One line that is overwritten; without a terminal, written once.
struct Shown {
    is_terminal: bool,
    is_shown: bool,
}

impl Shown {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), is_shown: false }
    }

    fn show(&mut self, what: &str, since: Duration, detail: &str) {
        if self.is_terminal {
            let line = format!("{what}: {} s  {detail}", since.as_secs());
            let line: String = line.chars().take(WIDTH).collect();
            eprint!("\r\x1b[2K{line}");
            let _ = io::stderr().flush();
        } else if !self.is_shown {
            eprintln!("{what}");
        }
        self.is_shown = true;
    }

    fn erase(&self) {
        if self.is_terminal && self.is_shown {
            eprint!("\r\x1b[2K");
        }
    }
}
