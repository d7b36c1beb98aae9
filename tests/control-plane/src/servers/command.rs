//! One command line, written as a shell script that a person can read and repeat.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// A program to run, and its name.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// Also the name of its script, its log and the guardian's variable.
    pub(crate) name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Server {
    pub(crate) fn new(name: &'static str, program: &Path) -> Self {
        Self { name, program: program.to_owned(), args: Vec::new(), env: Vec::new() }
    }

    pub(crate) fn flag(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.args.push(format!("--{name}={}", value.as_ref().to_string_lossy()));
        self
    }

    pub(crate) fn args(mut self, args: &[String]) -> Self {
        self.args.extend_from_slice(args);
        self
    }

    pub(crate) fn env(mut self, env: &[(String, String)]) -> Self {
        self.env.extend_from_slice(env);
        self
    }

    /// `exec`, so that the process id of the shell becomes the server's.
    pub(crate) fn script(&self) -> String {
        let mut script = String::new();
        for (name, value) in &self.env {
            script += &format!("export {name}={}\n", quoted(value));
        }
        script += &format!("exec {}", quoted(&self.program.to_string_lossy()));
        for arg in &self.args {
            script += &format!(" \\\n    {}", quoted(arg));
        }
        script + "\n"
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_every_word_as_it_was_given() {
        let server = Server::new("printf", Path::new("printf"))
            .args(&["%s|".to_owned(), "it's".to_owned(), "$HOME `x`".to_owned()])
            .flag("dir", "a b")
            .env(&[("WORD".to_owned(), "un'quoted".to_owned())]);
        let script = server.script().replace("exec", "printf '%s|' \"$WORD\"; exec");
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "un'quoted|it's|$HOME `x`|--dir=a b|");
    }
}
