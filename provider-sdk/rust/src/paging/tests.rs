use std::collections::HashMap;

use serde_json::Value;

use super::*;

fn request(cluster: &str, page_token: &str, page_size: i32) -> ListInstancesRequest {
    ListInstancesRequest {
        cluster: Some(ClusterRef { uid: cluster.to_owned(), name: String::new() }),
        page_token: page_token.to_owned(),
        page_size,
        ..Default::default()
    }
}

/// `$3000` is a text of 3000 bytes.
fn spelled(text: &str) -> String {
    match text.strip_prefix('$') {
        Some(length) => "x".repeat(length.parse().unwrap()),
        None => text.to_owned(),
    }
}

/// [R:page-token-validity]
#[tokio::test(start_paused = true)]
async fn tokens_stand_for_those_of_clouds_as_in_every_sdk() {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../../../../proto/vectors/tokens.json")).unwrap();
    let validity = Duration::from_secs(300);
    let (pager, other, start) = (Pager::new(validity), Pager::new(validity), Instant::now());
    let mut issued = HashMap::new();
    assert!(!rows.is_empty());
    for row in &rows {
        let at = Duration::from_secs(row["at"].as_u64().unwrap());
        tokio::time::advance(at - start.elapsed()).await;
        let cluster = row["cluster"].as_str().unwrap_or("c-1");
        if let Some(cloud_token) = row["seal"].as_str() {
            let token = pager.seal(&request(cluster, "", 0), &spelled(cloud_token)).unwrap();
            assert!(token.len() <= 1024, "{row}: {} bytes", token.len());
            issued.insert(row["as"].as_str().unwrap(), token);
            continue;
        }
        let mut token = match row["open"].as_str() {
            Some(name) => issued[name].clone(),
            None => row["token"].as_str().unwrap().to_owned(),
        };
        if row["altered"] == true {
            let first = if token.starts_with('A') { "B" } else { "A" };
            token.replace_range(..1, first);
        }
        let pager = if row["process"].is_string() { &other } else { &pager };
        let asked = request(cluster, &token, 0);
        let opened = match row["list"].as_str() {
            Some("ListRoutes") => pager.open(&ListRoutesRequest {
                cluster: asked.cluster,
                page_token: asked.page_token,
                ..Default::default()
            }),
            _ => pager.open(&asked),
        };
        let opened = opened.map_err(|error| error.reason());
        let refused = opened
            .as_ref()
            .err()
            .map(|reason| reason.as_str_name().strip_prefix("ERROR_REASON_").unwrap_or_default().to_owned());
        assert_eq!(refused.as_deref(), row["reason"].as_str(), "{row}");
        if let (Ok(text), Some(want)) = (opened, row["becomes"].as_str()) {
            assert_eq!(text, spelled(want), "{row}");
        }
    }
}

fn walk(pager: &Pager, items: &str, size: i32) -> Vec<String> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let (page, next) = pager.page(&request("c", &token, size), items.chars(), char::to_string).unwrap();
        pages.push(page.iter().collect());
        token = next;
        if token.is_empty() {
            return pages;
        }
    }
}

/// [R:page-walk-ends]
#[test]
fn a_walk_sees_everything_once_and_ends() {
    let pager = Pager::default();
    for (items, size, pages) in [
        ("", 2, vec![""]),
        ("a", 2, vec!["a"]),
        ("ba", 2, vec!["ab"]),
        ("cab", 2, vec!["ab", "c"]),
        ("dacb", 0, vec!["abcd"]),
        ("eadbc", 1, vec!["a", "b", "c", "d", "e"]),
    ] {
        assert_eq!(walk(&pager, items, size), pages, "{items}");
    }
}

#[test]
fn what_comes_and_goes_during_a_walk_costs_the_others_nothing() {
    let pager = Pager::default();
    let page = |token: &str, items: &[&str]| {
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        pager.page(&request("c", token, 2), items, String::clone).unwrap()
    };
    let (first, token) = page("", &["a", "b", "c", "d"]);
    let (second, _) = page(&token, &["a", "aa", "c", "d"]);
    assert_eq!((first.join(""), second.join("")), ("ab".to_owned(), "cd".to_owned()));
    assert_eq!(page(&token, &["c", "d"]).0.join(""), "cd", "a token may be used again");
}

#[test]
fn long_tokens_take_a_bounded_place() {
    let (pager, long) = (Pager::default(), "x".repeat(LONGEST_WITHIN + 1));
    let first = pager.seal(&request("c", "", 0), &long).unwrap();
    for _ in 0..MOST_KEPT {
        pager.seal(&request("c", "", 0), &long).unwrap();
    }
    assert_eq!(pager.kept.lock().texts.len(), MOST_KEPT);
    let refused = pager.open(&request("c", &first, 0)).unwrap_err();
    assert_eq!(refused.reason(), crate::proto::ErrorReason::PageTokenExpired, "it was issued");
}
