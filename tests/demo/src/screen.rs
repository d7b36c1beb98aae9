//! The terminal: tables are drawn over their former selves where there is a terminal, and printed on change where there is
//! none.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::io::{self, IsTerminal as _, Write as _};

/// Where the story is told.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// The tables that stand at the bottom of the screen.
    drawn: Vec<String>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { live: io::stdout().is_terminal(), drawn: Vec::new() }
    }

    /// A line of the story; the tables so far become part of the past.
    pub(crate) fn say(&mut self, line: &str) {
        self.settle();
        if self.live {
            println!("\n\x1b[1m{line}\x1b[0m");
        } else {
            println!("\n{line}");
        }
    }

    /// A line of detail.
    pub(crate) fn note(&mut self, line: &str) {
        self.settle();
        println!("  {line}");
    }

    /// Shows tables that will change. Without a terminal, only [`Screen::settle`] prints them.
    pub(crate) fn draw(&mut self, lines: Vec<String>) {
        if self.live && lines != self.drawn {
            self.erase();
            for line in &lines {
                println!("{line}");
            }
            let _ = io::stdout().flush();
        }
        self.drawn = lines;
    }

    /// The tables will not change any more.
    pub(crate) fn settle(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        if !self.live {
            for line in drawn {
                println!("{line}");
            }
        }
    }

    fn erase(&self) {
        if !self.drawn.is_empty() {
            print!("\x1b[{}A\x1b[0J", self.drawn.len());
        }
    }
}
