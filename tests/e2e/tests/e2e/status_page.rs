//! The status page in a real browser, as a person opens it: through `ccmctl proxy`, with that person's own credentials.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{join, nothing_was_forbidden, service};
use test_cluster::{
    Cluster,
    http::Caller,
    nodes::{as_registered, register},
    services::{create, ingress, load_balancer},
    wait,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::quick;

/// Set to a file to keep the screenshot, as for docs/status-page.png.
const PICTURE: &str = "STATUS_PAGE_PICTURE";

/// `ccmctl proxy`, and its address.
async fn proxy(cluster: &Cluster) -> Result<(Child, String)> {
    let mut command = cluster.ccmctl_command(&cluster.control_plane.admin_kubeconfig()).await?;
    let mut child = command.arg("proxy").args(cluster.ccmctl_way()?).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let line = lines.next_line().await?.context("ccmctl proxy ended at once")?;
    Ok((child, line))
}

/// The page after it has queried the host, and the browser's complaints.
async fn browse(browser: &str, url: &str, folder: &Path, more: &[String]) -> Result<(String, String)> {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        // A browser looks for updates and more by itself: it must reach nothing but the loopback address.
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
        ])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")
        .args(["--enable-logging=stderr", "--virtual-time-budget=12000", "--window-size=1200,1500"])
        .arg(format!("--user-data-dir={}", folder.display()))
        .args(more)
        .args(["--dump-dom", url])
        .env("HOME", folder)
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{browser} cannot be run"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let complaints =
        text(&output.stderr).lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    Ok((text(&output.stdout), complaints))
}

fn browser() -> Result<&'static str> {
    let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    match known.into_iter().find(|path| Path::new(path).exists()) {
        Some(path) => Ok(path),
        None => bail!("no browser: apt-get install -y --no-install-recommends chromium fonts-dejavu-core"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium; .ci/run runs it where there is one"]
async fn a_browser_shows_what_waits_and_why() -> Result<()> {
    let browser = browser()?;
    let cluster = quick()
        .host_flag("--cluster-cidr=10.244.0.0/16")
        .host_flag("--allocate-node-cidrs")
        .host_flag("--controllers=*,nodeipam")
        .start()
        .await?;
    join(&cluster, &["node-a", "node-b"]).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "has an address", |service| !ingress(service).is_empty()).await?;
    register(&cluster.client, as_registered("node-waiting")).await?;
    // A provider's text may be markup: it is shown, not interpreted.
    cluster
        .cloud()?
        .fault(
            "error,method=ListInstances,reason=CLOUD_PERMISSION_DENIED,message=may not <b id=evil>list</b>",
        )
        .await?;
    let (status, _) = cluster.host_get("/state/providers/mock/instances").await?;
    ensure!(status == 502, "the fault is met: {status}");
    wait::until("the host knows why the node waits", async || {
        let (_, state) = cluster.host_get("/state").await?;
        Ok((state.contains("no instance for this node") && state.contains("\"Whole\"")).then_some(()))
    })
    .await?;

    let (mut proxy, url) = proxy(&cluster).await?;
    let folder = cluster.folder().join("browser");
    std::fs::create_dir(&folder)?;
    let picture: Option<PathBuf> = std::env::var_os(PICTURE).map(Into::into);
    let more = picture.map(|path| format!("--screenshot={}", path.display()));
    let more: Vec<String> = more.into_iter().collect();
    let (page, complaints) = browse(browser, &url, &folder, &more).await?;
    ensure!(complaints.is_empty(), "the browser complained:\n{complaints}");
    for word in [
        "class=\"mark Serving\">Serving",
        "v1alpha1.Clusters",
        ">node-a</button>",
        "class=\"mark Blocked\">Blocked",
        "the node is not initialised yet: the cloud has no instance for this node (yet)",
        "default/web",
        "deletions are allowed, within the limits",
        "list complete",
        "10.244.",
        "cidrallocator_node",
        "<polyline points=\"",
        "&lt;b id=evil&gt;list&lt;/b&gt;",
    ] {
        ensure!(page.contains(word), "the page has no {word:?}:\n{page}");
    }
    ensure!(
        !page.contains("<b id=\"evil\">")
            && page.contains("id=\"failure\" class=\"failure\" role=\"alert\" hidden"),
        "{page}"
    );

    proxy.kill().await?;
    let (status, body) = cluster.host_get_as(&Caller::Nobody, "/status").await?;
    ensure!(status == 403, "behind the same authorization as metrics: {status} {body}");
    nothing_was_forbidden(&cluster)
}
