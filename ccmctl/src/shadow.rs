//! What a host in shadow mode would change.
//!
//! In: its report. Out: a table with the differences first, or the report as it came, and a verdict.

use anyhow::Result;
use ccm_state::shadow::{Row, ShadowReport, Standing, Verdict as Told};
use serde_json::Value;

use crate::{
    Verdict,
    cli::Way,
    door::Door,
    show::Output,
    table::{Table, plain},
};

/// The pods of a host that acts; one in shadow mode has other labels.
const ACTING: &str = "app.kubernetes.io/name=cloud-controller-manager";
/// As the chart labels a host in shadow mode.
const SHADOW: &str = "app.kubernetes.io/name=cloud-controller-manager-shadow";

pub(crate) async fn diff(way: &Way, output: &Output) -> Result<Verdict> {
    let mut way = way.clone();
    // It holds no Lease, so its pod is the only one that runs.
    way.lease = String::new();
    if way.selector == ACTING {
        SHADOW.clone_into(&mut way.selector);
    }
    let report: ShadowReport = Door::open(&way).await?.get("/shadow").await?;
    output.print(&report, || text(&report))?;
    Ok(match report.verdict {
        Told::NothingWouldChange => Verdict::Well,
        Told::WouldChange => Verdict::Differs,
        Told::Unknown => Verdict::Unknown,
    })
}

fn text(report: &ShadowReport) -> String {
    let mut text = match report.verdict {
        Told::NothingWouldChange => "nothing would change\n".to_owned(),
        Told::WouldChange => "the switch would change what differs\n".to_owned(),
        Told::Unknown => "not known yet\n".to_owned(),
    };
    for why in &report.unknown {
        text += &format!("not known: {}\n", plain(why));
    }
    let mut rows: Vec<&Row> = report.rows.iter().collect();
    rows.sort_by_key(|row| row.standing);
    if !rows.is_empty() {
        let mut table = Table::new(&["STANDING", "CONTROLLER", "KIND", "NAME", "WHAT"]);
        for row in rows {
            let name = match row.namespace.as_str() {
                "" => row.name.clone(),
                namespace => format!("{namespace}/{}", row.name),
            };
            table.row([standing(row.standing), row.controller.clone(), row.kind.clone(), name, what(row)]);
        }
        text += &format!("\n{table}");
    }
    for agreed in report.agreed.iter().filter(|agreed| agreed.count > 0) {
        text += &format!("\n{} agreed: {}", plain(&agreed.controller), agreed.count);
    }
    text.trim_end().to_owned() + "\n"
}

fn standing(standing: Standing) -> String {
    match standing {
        Standing::Differs => "differs",
        Standing::Pending => "pending",
        Standing::Once => "once",
    }
    .to_owned()
}

fn what(row: &Row) -> String {
    if row.field.is_empty() {
        return row.what.clone();
    }
    let value = |value: &Value| match value {
        Value::Null => "absent".to_owned(),
        value => value.to_string(),
    };
    match &row.would {
        Value::Null => format!("{}, now {}", row.what, value(&row.now)),
        would => format!("{} to {would}, now {}", row.what, value(&row.now)),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_come_first_and_say_what_and_from_what() {
        let row = |name: &str, standing, field: &str, now: Value, would: Value| Row {
            controller: "cloud-node-controller".to_owned(),
            kind: "Node".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            standing,
            what: "would set the label zone".to_owned(),
            field: field.to_owned(),
            now,
            would,
            since: Timestamp::UNIX_EPOCH,
        };
        let report = ShadowReport {
            api_version: ccm_state::API_VERSION.to_owned(),
            kind: "ShadowReport".to_owned(),
            time: Timestamp::UNIX_EPOCH,
            grace_seconds: 120,
            verdict: Told::WouldChange,
            unknown: vec!["Node c: no answer".to_owned()],
            rows: vec![
                row("a", Standing::Once, "", Value::Null, Value::Null),
                row("b", Standing::Differs, "/metadata/labels/zone", json!("x"), json!("y")),
            ],
            agreed: Vec::new(),
        };
        let want = "the switch would change what differs\nnot known: Node c: no answer\n\n\
                    STANDING  CONTROLLER             KIND  NAME  WHAT\n\
                    differs   cloud-node-controller  Node  b     would set the label zone to \"y\", now \"x\"\n\
                    once      cloud-node-controller  Node  a     would set the label zone\n";
        assert_eq!(text(&report), want);
    }
}
