//! Writes the logs of host and provider into the record; a panic anywhere is a broken rule.

use std::fmt::{Debug, Write as _};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::record::Record;

/// Installs it; call this once per process.
pub fn follow(record: &Record) {
    let _second_run_of_the_process = tracing::subscriber::set_global_default(Logs(record.clone()));
    let record = record.clone();
    std::panic::set_hook(Box::new(move |panic| record.broken("nothing panics", panic.to_string())));
}

/// Only events: spans would cost more than everything else.
struct Logs(Record);

impl Subscriber for Logs {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && *about.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let about = event.metadata();
        let mut line = Line(String::new());
        event.record(&mut line);
        let target = about.target().split("::").take(3).collect::<Vec<_>>().join("::");
        self.0.note("log", &format!("{} {target}{}", about.level(), line.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _a_string_takes_all = write!(self.0, " {field}={value:?}");
    }
}
