//! The terminal: tables are redrawn in place on a terminal, and otherwise printed when they change.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::io::{self, IsTerminal as _, Write as _};

/// The output of the story.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// The tables at the bottom of the screen.
    drawn: Vec<String>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { live: io::stdout().is_terminal(), drawn: Vec::new() }
    }

    /// Prints a line of the story; the tables so far become part of the past.
    pub(crate) fn say(&mut self, line: &str) {
        self.settle();
        if self.live {
            println!("\n\x1b[1m{line}\x1b[0m");
        } else {
            println!("\n{line}");
        }
    }

    /// Prints a line of detail.
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

    /// Prints tables that will no longer change.
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
