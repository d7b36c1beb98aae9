//! `list`: all cases, for the screen or as the page of the documentation.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::Result;
use clap::Args;

use crate::{
    case::{Case, Level, Profile},
    cases, contract,
    run::Filter,
};

#[derive(Debug, Default, Args)]
pub(super) struct ListArguments {
    /// Only cases of this profile or rule, or with this text in their id. Repeat it, or separate several by commas.
    #[arg(long, value_delimiter = ',')]
    filter: Vec<String>,
}

impl ListArguments {
    pub(super) fn run(self) -> Result<ExitCode> {
        let filter = Filter::new(self.filter)?;
        let mut out = io::stdout().lock();
        for case in cases::all().filter(|case| filter.lets_pass(case)) {
            writeln!(out, "{:<10} {:<20} {:<9} {}", case.id, case.profile.name(), level(case), case.title)?;
            if !case.hooks.is_empty() {
                writeln!(out, "{:<10} needs hooks: {}", "", case.hooks.join(", "))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn level(case: &Case) -> &'static str {
    match case.level {
        Level::Core => "core",
        Level::Extended => "extended",
    }
}

/// The page `docs/conformance-cases.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Conformance cases\n\nMade from the suite by `UPDATE_DOCS=1 cargo test -p provider-conformance --test rules`; do not edit. How to \
         run them stands in [conformance.md](conformance.md).\n",
    );
    let count = cases::all().count();
    let rules = contract::tags().count();
    let _never_fails = write!(page, "\n{count} cases try {rules} rules of the contract.\n");
    for profile in Profile::ALL {
        let mut of = cases::all().filter(|case| case.profile == profile).peekable();
        if of.peek().is_none() {
            continue;
        }
        let _never_fails = write!(
            page,
            "\n## {}\n\n| Case | Level | What holds | Rules, or words of the contract | Hooks |\n|---|---|---|---|---|\n",
            profile.name()
        );
        for case in of {
            let rules = case.rules.iter().map(|rule| format!("`{rule}`"));
            let words = case.words.iter().map(|words| format!("“{}”", words.replace('|', "\\|")));
            let cited: Vec<_> = rules.chain(words).collect();
            let hooks: Vec<_> = case.hooks.iter().map(|hook| format!("`{hook}`")).collect();
            let _never_fails = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                case.id,
                level(case),
                case.title,
                cited.join(", "),
                hooks.join(", ")
            );
        }
    }
    page
}
