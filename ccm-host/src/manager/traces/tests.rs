//! The trace of a reconcile that calls a provider, with the exporter in memory.

use super::*;

fn settings(endpoint: Option<&str>) -> TraceSettings {
    TraceSettings {
        tracing_endpoint: endpoint.map(str::to_owned),
        tracing_sampling_rate_per_million: 1_000_000,
    }
}

#[test]
fn the_flag_wins_and_then_the_more_special_variable() {
    let both = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => Some("http://special:4317".to_owned()),
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://general:4317".to_owned()),
        _ => None,
    };
    let general = |name: &str| both(name).filter(|url| url.contains("general"));
    let wrong = |name: &str| general(name).map(|url| url.replace("http", "https"));
    let of = |flag: Option<&str>, variable: &dyn Fn(&str) -> Option<String>| {
        endpoint(&settings(flag), variable).map_err(|error| error.to_string())
    };
    assert_eq!(of(Some("http://given:1"), &both), Ok(Some("http://given:1".to_owned())));
    assert_eq!(of(None, &both), Ok(Some("http://special:4317".to_owned())));
    assert_eq!(of(None, &general), Ok(Some("http://general:4317".to_owned())));
    assert_eq!(of(None, &|_| None), Ok(None));
    assert_eq!(of(None, &|_| Some(String::new())), Ok(None));
    assert!(of(None, &wrong).unwrap_err().contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
}
