//! A whole provider that knows instances and nothing else.
use std::collections::HashMap;

use clap::Parser;
use cloudprovider_sdk::proto::*;
use cloudprovider_sdk::{
    CallContext, Instances, Provider, Result, ServeOptions, async_trait, results, telemetry,
};

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeOptions,
}

/// The cloud: here a list of servers by id, in your provider a client of its API.
struct Cloud(HashMap<String, (InstanceState, &'static str)>);

impl Cloud {
    fn look_up(&self, query: &InstanceQuery) -> InstanceResult {
        let (key, node) = (&query.key, query.node.clone().unwrap_or_default());
        let id = match node.provider_id.strip_prefix("example://") {
            Some(id) if !id.is_empty() => id,
            None if node.provider_id.is_empty() => &node.name, // A new node has no provider ID yet.
            _ => return results::not_owned(key),
        };
        let Some((state, address)) = self.0.get(id) else { return results::absent(query) };
        let address = NodeAddress { r#type: NodeAddressType::InternalIp.into(), address: (*address).into() };
        let instance = Instance {
            provider_id: format!("example://{id}"),
            instance_type: "small".into(),
            zone: "eu-1".into(),
            addresses: vec![address],
            ..Default::default()
        };
        results::found(key, *state, instance)
    }
}

#[async_trait]
impl Instances for Cloud {
    async fn batch_get_instances(
        &self,
        _ctx: &CallContext,
        request: BatchGetInstancesRequest,
    ) -> Result<BatchGetInstancesResponse> {
        let results = request.queries.iter().map(|query| self.look_up(query)).collect();
        Ok(BatchGetInstancesResponse { results })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    telemetry::init(flags.serve.log_format, &flags.serve.log_level)?;
    let servers =
        [("node-1", InstanceState::Running, "10.0.0.1"), ("node-2", InstanceState::Stopped, "10.0.0.2")];
    let cloud = Cloud(servers.map(|(id, state, address)| (id.to_owned(), (state, address))).into());
    let provider = Provider::builder("example").provider_id_prefix("example://").instances(cloud).build()?;
    Ok(cloudprovider_sdk::serve(provider, flags.serve).await?)
}
