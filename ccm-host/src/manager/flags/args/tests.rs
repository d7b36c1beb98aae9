//! Settings from a file: like flags, but with lower precedence.

use std::io::Write as _;

use crate::manager::flags::{Request, Settings, parse};

struct Case {
    file: tempfile::NamedTempFile,
}

impl Case {
    fn new(yaml: &str) -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(yaml.as_bytes()).unwrap();
        Self { file }
    }

    fn parse(&self, words: &[&str]) -> Result<Settings, Vec<String>> {
        let config = format!("--config={}", self.file.path().display());
        match parse([config.as_str()].iter().chain(words)) {
            Ok(Request::Run(settings)) => Ok(*settings),
            Ok(request) => panic!("{request:?}"),
            Err(mistakes) => {
                let path = self.file.path().display().to_string();
                Err(mistakes.iter().map(|mistake| mistake.to_string().replace(&path, "FILE")).collect())
            }
        }
    }
}

const FILE: &str = "
# comments are welcome
provider:
  mock: unix:///run/mock.sock
  other: unix:///run/other.sock
cluster_name: shop
controllers: ['*', -service]
concurrent-node-syncs: 7
kube-api-qps: 0.5
configure-cloud-routes: false
node-deletion-max-share: 25%
feature-gates: {A: true}
";

#[test]
fn a_file_says_what_flags_say() {
    let from_file = Case::new(FILE).parse(&[]).unwrap();
    let words = [
        "--provider=mock=unix:///run/mock.sock",
        "--provider=other=unix:///run/other.sock",
        "--cluster-name=shop",
        "--controllers=*,-service",
        "--concurrent-node-syncs=7",
        "--kube-api-qps=0.5",
        "--configure-cloud-routes=false",
        "--node-deletion-max-share=25%",
        "--feature-gates=A=true",
    ];
    let Ok(Request::Run(settings)) = parse(words) else { panic!("the flags are right") };
    assert_eq!(Settings { flags: Vec::new(), ..from_file }, Settings { flags: Vec::new(), ..*settings });
}

#[test]
fn an_empty_list_is_not_the_default() {
    let settings = Case::new("provider: mock=/run/m.sock\ncontrollers: []").parse(&[]).unwrap();
    assert!(settings.enabled.is_empty(), "{:?}", settings.enabled);
}

#[test]
fn flags_win_and_replace_lists() {
    let words = ["--provider=third=/run/third.sock", "--concurrent_node_syncs=9", "--controllers=cloud-node"];
    let settings = Case::new(FILE).parse(&words).unwrap();
    let names: Vec<&str> = settings.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["third"]);
    assert_eq!(settings.controllers.nodes.concurrent_node_syncs, 9);
    assert_eq!(settings.enabled.len(), 1);
    assert_eq!(settings.kube.cluster_name, "shop", "what no flag says comes from the file");
}

#[test]
fn an_empty_file_sets_nothing() {
    for yaml in ["", "# nothing\n", "{}"] {
        assert!(Case::new(yaml).parse(&["--provider=mock=/run/mock.sock"]).is_ok(), "{yaml:?}");
    }
}

#[test]
fn every_mistake_of_a_file_is_told_with_its_place() {
    let yaml = "
provider: mock=/run/mock.sock
concurrent-node-syncs: 0
node-monitor-perod: 5s
version: true
cluster-cidr: [[10.0.0.0/8]]
leader-elect:
v: 11
";
    let found = Case::new(yaml).parse(&["--node-monitor-period=-5s", "--v=4"]).unwrap_err();
    assert_eq!(
        found,
        [
            "FILE: cluster-cidr: holds no value of a flag: write a text, or a list or map of texts",
            "FILE: leader-elect: holds no value of a flag: write a text, or a list or map of texts",
            "FILE: node-monitor-perod: is not the name of a flag: did you mean --node-monitor-period? see --help for all \
             flags",
            "FILE: version: belongs on the command line: leave it out, or give --version",
            "--node-monitor-period=-5s: is negative: give 5s",
            "FILE: --concurrent-node-syncs=0: no node would ever be initialised: give 1 or more",
        ]
    );
}

#[test]
fn what_is_no_map_or_no_file_is_told() {
    let found = Case::new("[a, b]").parse(&["--provider=mock=/run/mock.sock"]).unwrap_err();
    assert!(found.len() == 1 && found[0].starts_with("--config=FILE: is not a YAML map: "), "{found:?}");
    let missing = parse(["--provider=mock=/run/mock.sock", "--config=/no/such/file"]).unwrap_err();
    assert_eq!(
        missing[0].to_string(),
        "--config=/no/such/file: cannot be read: No such file or directory (os error 2): give a file that this \
         process may read"
    );
}
