//! LIST and WATCH: pages, versions, selectors, streaming lists.

use serde_json::json;

use super::{Step, delete, get, merge, post};

const MAPS: &str = "/api/v1/namespaces/lists/configmaps";

pub(crate) fn steps() -> Vec<Step> {
    [objects(), pages(), versions(), selectors(), watches(), streams()].concat()
}

fn map(name: &'static str) -> Step {
    let even = if ["b", "d"].contains(&name) { "yes" } else { "no" };
    post(MAPS, json!({"metadata": {"name": name, "labels": {"n": name, "even": even}}})).version_as(name)
}

fn objects() -> Vec<Step> {
    let mut steps = vec![post("/api/v1/namespaces", json!({"metadata": {"name": "lists"}}))];
    steps.extend(["a", "b", "c", "d", "e"].map(map));
    steps
}

fn pages() -> Vec<Step> {
    vec![
        get("/api/v1/namespaces/lists/configmaps?limit=2&labelSelector=n"),
        get("/api/v1/namespaces/lists/configmaps?limit=2").remember("page", "/metadata/continue"),
        delete("/api/v1/namespaces/lists/configmaps/c"),
        // The page shows the objects that existed when the list began.
        get("/api/v1/namespaces/lists/configmaps?limit=2&continue=<page>")
            .remember("page", "/metadata/continue"),
        get("/api/v1/namespaces/lists/configmaps?limit=2&continue=<page>"),
        get("/api/v1/namespaces/lists/configmaps?limit=2&continue=junk"),
        get("/api/v1/namespaces/lists/configmaps?limit=2&continue=<page>&resourceVersion=5"),
        get("/api/v1/namespaces/lists/configmaps?limit=2&resourceVersion=0"),
        get("/api/v1/namespaces/lists/configmaps?limit=-1"),
        get("/api/v1/namespaces/lists/configmaps?limit=x"),
    ]
}

fn versions() -> Vec<Step> {
    vec![
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=<c>&resourceVersionMatch=Exact&limit=2"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=<c>&resourceVersionMatch=Exact"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=<b>&limit=1"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=<b>"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=<b>&resourceVersionMatch=NotOlderThan"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=99999999"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=99999999&resourceVersionMatch=Exact"),
        get("/api/v1/namespaces/lists/configmaps/a?resourceVersion=99999999"),
        get("/api/v1/namespaces/lists/configmaps/a?resourceVersion=0"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersionMatch=Exact"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersionMatch=Exact&resourceVersion=0"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersionMatch=Nope&resourceVersion=1"),
        get("/api/v1/namespaces/lists/configmaps?resourceVersion=x"),
        get("/api/v1/namespaces/lists/configmaps?sendInitialEvents=true"),
    ]
}

fn selectors() -> Vec<Step> {
    vec![
        get("/api/v1/namespaces/lists/configmaps?labelSelector=even%3Dyes"),
        get("/api/v1/namespaces/lists/configmaps?labelSelector=even%3D%3Dyes,n!%3Db"),
        get("/api/v1/namespaces/lists/configmaps?labelSelector=even%20in%20(yes,x),n%20notin%20(b)"),
        get("/api/v1/namespaces/lists/configmaps?labelSelector=!even"),
        get("/api/v1/namespaces/lists/configmaps?labelSelector=!!"),
        get("/api/v1/namespaces/lists/configmaps?fieldSelector=metadata.name%3Da"),
        get("/api/v1/namespaces/lists/configmaps?fieldSelector=metadata.name!%3Da"),
        get("/api/v1/namespaces/lists/configmaps?fieldSelector=nope%3Da"),
        get("/api/v1/configmaps?fieldSelector=metadata.namespace%3Dlists").partial_list(),
    ]
}

fn watches() -> Vec<Step> {
    vec![
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1"),
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&resourceVersion=0"),
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&resourceVersion=<d>"),
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&resourceVersion=<d>").partial(),
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&resourceVersion=9999999"),
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&resourceVersion=x"),
        merge("/api/v1/namespaces/lists/configmaps/a", json!({"metadata": {"labels": {"even": "yes"}}})),
        merge("/api/v1/namespaces/lists/configmaps/b", json!({"metadata": {"labels": {"even": "no"}}})),
        merge("/api/v1/namespaces/lists/configmaps/d", json!({"metadata": {"labels": {"x": "y"}}})),
        // An object that enters the selection is added, one that leaves it is deleted.
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&labelSelector=even%3Dyes&resourceVersion=<e>",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dd&resourceVersion=<e>",
        ),
        get("/api/v1/namespaces/lists/configmaps/a?watch=true&timeoutSeconds=1"),
    ]
}

fn streams() -> Vec<Step> {
    vec![
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=<b>",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=9999999",
        ),
        get("/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=true"),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=Exact",
        ),
        get(
            "/api/v1/namespaces/lists/configmaps?watch=true&timeoutSeconds=1&resourceVersionMatch=NotOlderThan",
        ),
        delete("/api/v1/namespaces/lists/configmaps?labelSelector=n"),
        get(MAPS),
    ]
}
