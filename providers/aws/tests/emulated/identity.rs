//! Who the provider is to AWS, and which cluster it serves, where the configuration leaves that to the machine it runs on.

use cloudprovider_proto::v1alpha1::{InstanceState, InstanceView};
use serde_json::Value;

use crate::aws::{Aws, Instance};

/// Serves with these variables instead of an access key, and returns who has called AWS then.
async fn callers(prepare: impl Fn(&Aws) -> Vec<(&'static str, String)>) -> Vec<String> {
    let mut aws = Aws::start().await;
    let instance: Instance = aws.tell("launch us-east-1a").await;
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        aws.environment.remove(name);
    }
    for (name, value) in prepare(&aws) {
        aws.environment.insert(name.to_owned(), value);
    }
    let native = aws.native(&[]).await;
    let results = native.ask(&[instance.node()], InstanceView::Existence).await;
    assert_eq!(results[0].state(), InstanceState::Running);
    aws.tell("callers").await
}

fn key(name: &'static str) -> [(&'static str, String); 2] {
    [("AWS_ACCESS_KEY_ID", name.to_owned()), ("AWS_SECRET_ACCESS_KEY", "emulated".to_owned())]
}

#[tokio::test]
async fn a_role_of_the_pod_is_assumed_with_its_token() {
    let callers = callers(|aws| {
        vec![
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ccm".to_owned()),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", aws.file("token", "a.b.c")),
            ("AWS_ENDPOINT_URL_STS", aws.url.clone()),
        ]
    });
    // The emulator's keys of assumed roles begin so, as AWS's do.
    let callers = callers.await;
    assert!(callers.iter().any(|caller| caller.starts_with("ASIA")), "{callers:?}");
}

#[tokio::test]
async fn pod_identity_gives_credentials() {
    let callers = callers(|aws| {
        vec![
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/pod-identity", aws.url)),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", aws.file("token", "pod-token")),
        ]
    });
    assert_eq!(callers.await, ["OfThePod"]);
}

#[tokio::test]
async fn the_instance_gives_credentials_to_a_session() {
    let callers = callers(|aws| {
        vec![
            ("AWS_EC2_METADATA_DISABLED", "false".to_owned()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", aws.url.clone()),
        ]
    });
    assert_eq!(callers.await, ["OfTheInstance"]);
}

#[tokio::test]
async fn the_role_of_the_cloud_config_is_assumed_on_behalf_of_its_source() {
    let source = "arn:aws:eks:us-east-1:123456789012:cluster/blue";
    let callers = callers(|aws| {
        aws.configure(&format!("RoleARN = arn:aws:iam::123456789012:role/ccm\nSourceARN = {source}"));
        Vec::from_iter(key("OfThisProcess").into_iter().chain([("AWS_ENDPOINT_URL_STS", aws.url.clone())]))
    })
    .await;
    for caller in ["123456789012", "OfThisProcess", source] {
        assert!(callers.iter().any(|one| one == caller), "{callers:?}");
    }
    assert!(callers.iter().any(|caller| caller.starts_with("ASIA")), "{callers:?}");
}

#[tokio::test]
async fn region_network_and_cluster_are_those_of_the_instance() {
    let mut aws = Aws::start().await;
    let [here, there]: [Instance; 2] = aws.tell::<Vec<_>>("launch us-east-1a 2").await.try_into().unwrap();
    aws.tell::<Value>(&format!("run-on {}", here.id)).await;
    aws.leave_out(&["Zone", "Region", "VPC", "SubnetID", "KubernetesClusterID"]);
    let native = aws.native(&[]).await;
    let results = native.ask(&[there.new_node()], InstanceView::Metadata).await;
    assert_eq!(results[0].instance.as_ref().unwrap().provider_id, there.provider_id());
}
