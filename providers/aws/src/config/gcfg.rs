//! The format of `cloud.conf`: that of git's configuration, as Go's package gcfg reads it.
//!
//! In: the text. Out: its variables in order, each with its section, subsection and line. Which of them mean something is
//! decided by [`super`].

use anyhow::{Result, bail};

/// One `name = value`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub line: usize,
    pub section: String,
    pub subsection: String,
    pub name: String,
    /// `None`: the name stands alone.
    pub value: Option<String>,
}

/// All variables of a file.
pub(super) fn read(text: &str) -> Result<Vec<Variable>> {
    let mut variables = Vec::new();
    let mut here = None;
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let line_number = at + 1;
        let mut line = line.trim_start().to_owned();
        // A backslash at the end of a line joins the next one.
        while continues(&line) {
            line.pop();
            match lines.next() {
                Some((_, more)) => line.push_str(more),
                None => bail!("line {line_number} ends in a backslash, and the file ends there"),
            }
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            here = Some(section(rest, line_number)?);
            continue;
        }
        let Some((section, subsection)) = here.clone() else {
            bail!("line {line_number} stands before the first section; begin with [Global]")
        };
        let (name, value) = match line.find(['=', '#', ';']) {
            Some(at) if line[at..].starts_with('=') => {
                (&line[..at], Some(unquoted(&line[at + 1..], line_number)?))
            }
            Some(comment) => (&line[..comment], None),
            None => (&*line, None),
        };
        let name = name.trim_end().to_owned();
        if name.is_empty() || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            bail!("line {line_number} has no name of a variable: {line:?}");
        }
        variables.push(Variable { line: line_number, section, subsection, name, value });
    }
    Ok(variables)
}

/// An odd number of backslashes at the end; an even one is of escaped backslashes.
fn continues(line: &str) -> bool {
    (line.len() - line.trim_end_matches('\\').len()) % 2 == 1
}

/// `Name]` or `Name "subsection"]`, and perhaps a comment.
fn section(rest: &str, line: usize) -> Result<(String, String)> {
    let Some((inside, after)) = rest.rsplit_once(']') else {
        bail!("line {line}: the name of a section ends in \"]\"")
    };
    if !after.trim_start().is_empty() && !after.trim_start().starts_with(['#', ';']) {
        bail!("line {line}: {after:?} follows the name of a section; put it on a line of its own");
    }
    let (name, subsection) = match inside.split_once('"') {
        None => (inside.trim(), String::new()),
        Some((name, quoted)) => (name.trim(), unquoted(&format!("\"{quoted}"), line)?),
    };
    Ok((name.to_owned(), subsection))
}

/// A value without its quotes, escapes and comment.
fn unquoted(text: &str, line: usize) -> Result<String> {
    let mut value = String::new();
    // Blanks at the end count only within quotes.
    let mut kept = 0;
    let mut quoted = false;
    let mut rest = text.trim_start().chars();
    while let Some(next) = rest.next() {
        match next {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => value.push(match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('b') => '\u{8}',
                Some(plain @ ('"' | '\\')) => plain,
                other => {
                    bail!("line {line}: \\{} is no escape; write \\\\ for a backslash", other.unwrap_or(' '))
                }
            }),
            other => value.push(other),
        }
        if quoted || !next.is_whitespace() {
            kept = value.len();
        }
    }
    if quoted {
        bail!("line {line}: a quote is not closed");
    }
    value.truncate(kept);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, Option<String>)> {
        let all = read(text).unwrap();
        all.into_iter()
            .map(|one| (format!("{}/{}/{}", one.section, one.subsection, one.name), one.value))
            .collect()
    }

    #[test]
    fn values_are_read_as_git_does() {
        let text = "; first\n[Global]\nZone = us-east-1a ; comment\n VPC=\"vpc # 1\" \nflag\nlong = a \\\n  b\n[ServiceOverride \"1\"] # x\nURL = \"a\\\"b\"\n";
        let expected = [
            ("Global//Zone", Some("us-east-1a")),
            ("Global//VPC", Some("vpc # 1")),
            ("Global//flag", None),
            ("Global//long", Some("a   b")),
            ("ServiceOverride/1/URL", Some("a\"b")),
        ];
        assert_eq!(values(text), expected.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        for (text, says) in [
            ("Zone = a", "line 1 stands before the first section"),
            ("[Global]\nVPC = \"a", "line 2: a quote is not closed"),
            ("[Global\n", "line 1: the name of a section ends in"),
            ("[Global]\nVPC = \\x", "line 2: \\x is no escape"),
            ("[Global]\n= x", "line 2 has no name"),
            ("[Global]\nVPC = a\\", "line 2 ends in a backslash"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
