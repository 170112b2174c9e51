//! The cluster: nodes, and the volumes placed on them.

use super::node::{Loaded, Node, NodeId};
use super::volume::{Need, Volume, VolumeError, VolumeId};
use crate::device_model::DeviceModel;
use crate::limits::{NODES_MAX, VOLUMES_MAX};
use std::collections::BTreeMap;

/// A placed volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The volume.
    pub volume: Volume,
    /// The node of each leg.
    pub nodes: Vec<NodeId>,
}

/// A node that cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// Too many nodes.
    #[error("the limit of {NODES_MAX} nodes is reached")]
    TooMany,
    /// A capacity of zero.
    #[error("a node without capacity or bandwidth is not possible; use at least 1 byte")]
    Empty,
    /// An unknown device model: its index.
    #[error("the cluster has no device model {0}; add it first")]
    Model(usize),
}

/// A placement that cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The volume is invalid.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Too many volumes.
    #[error("the limit of {VOLUMES_MAX} volumes is reached; remove one")]
    TooMany,
    /// The volume is already placed.
    #[error("{0} is already placed; remove it first")]
    Exists(VolumeId),
    /// The volume is not placed.
    #[error("{0} is not placed")]
    Unknown(VolumeId),
    /// Not one node per leg.
    #[error("the volume has {legs} legs, but {nodes} nodes are named")]
    Legs {
        /// Legs of the volume.
        legs: u8,
        /// Nodes named.
        nodes: usize,
    },
    /// The node does not exist, or has no leg of the volume.
    #[error("{0} does not exist, or has no leg of the volume")]
    NoNode(NodeId),
    /// Two legs in one failure domain.
    #[error("{0} shares a failure domain with another leg of the volume")]
    Domain(NodeId),
    /// The node has too little left.
    #[error("{0} has too little left for the volume")]
    Full(NodeId),
}

/// Nodes and volumes of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    models: Vec<DeviceModel>,
    nodes: Vec<Loaded>,
    volumes: BTreeMap<VolumeId, Placed>,
}

impl Cluster {
    /// A cluster without nodes, of devices of these models.
    #[must_use]
    pub const fn new(models: Vec<DeviceModel>) -> Self {
        Self {
            models,
            nodes: Vec::new(),
            volumes: BTreeMap::new(),
        }
    }

    /// Adds a node.
    ///
    /// # Errors
    /// If it has no capacity or an unknown device, or the limit is reached.
    pub fn add_node(&mut self, node: Node) -> Result<NodeId, NodeError> {
        if node.bytes == 0 || node.bandwidth == 0 {
            return Err(NodeError::Empty);
        }
        let device = self.models.get(node.model);
        let device = device.ok_or(NodeError::Model(node.model))?;
        let id = u32::try_from(self.nodes.len()).map_err(|_| NodeError::TooMany)?;
        if self.nodes.len() >= NODES_MAX {
            return Err(NodeError::TooMany);
        }
        self.nodes.push(Loaded::new(node, device));
        Ok(NodeId(id))
    }

    /// Returns the device models.
    #[must_use]
    pub fn models(&self) -> &[DeviceModel] {
        &self.models
    }

    /// Returns a node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Loaded> {
        self.nodes.get(id.0 as usize)
    }

    /// Returns all nodes in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Loaded)> {
        (0..).map(NodeId).zip(&self.nodes)
    }

    /// Returns the placed volumes.
    #[must_use]
    pub const fn volumes(&self) -> &BTreeMap<VolumeId, Placed> {
        &self.volumes
    }

    /// Returns the nodes that could take a leg of a volume, in the order of their numbers, without
    /// regard to failure domains.
    ///
    /// # Errors
    /// If the volume is invalid.
    pub fn candidates(
        &self,
        volume: &Volume,
    ) -> Result<impl Iterator<Item = NodeId> + use<'_>, VolumeError> {
        let needs = self.needs(volume)?;
        let fits = move |(_, loaded): &(NodeId, &Loaded)| {
            let need = needs[loaded.node().model].as_ref();
            need.is_some_and(|need| loaded.fits(need))
        };
        Ok(self.nodes().filter(fits).map(|(id, _)| id))
    }

    /// Places a volume on the nodes that [`place`](Self::place) returned.
    ///
    /// # Errors
    /// If the volume exists, or the nodes cannot take it. Nothing changes then.
    pub fn insert(
        &mut self,
        id: VolumeId,
        volume: Volume,
        nodes: Vec<NodeId>,
    ) -> Result<(), InsertError> {
        if self.volumes.contains_key(&id) {
            return Err(InsertError::Exists(id));
        }
        if self.volumes.len() >= VOLUMES_MAX {
            return Err(InsertError::TooMany);
        }
        if nodes.len() != usize::from(volume.legs) {
            let (legs, nodes) = (volume.legs, nodes.len());
            return Err(InsertError::Legs { legs, nodes });
        }
        let needs = self.needs(&volume)?;
        for (at, &node) in nodes.iter().enumerate() {
            self.check_leg(&needs, node, &nodes[..at])?;
        }
        for &node in &nodes {
            self.add_leg(id, &volume, node);
        }
        self.volumes.insert(id, Placed { volume, nodes });
        Ok(())
    }

    /// Removes a volume, and returns it if it was placed.
    pub fn remove(&mut self, id: VolumeId) -> Option<Placed> {
        let placed = self.volumes.remove(&id)?;
        for &node in &placed.nodes {
            self.remove_leg(id, &placed.volume, node);
        }
        Some(placed)
    }

    /// Moves a leg of a volume to another node.
    ///
    /// # Errors
    /// If `from` has no leg of the volume, or `to` cannot take it. Nothing changes then.
    pub fn move_leg(&mut self, id: VolumeId, from: NodeId, to: NodeId) -> Result<(), InsertError> {
        let placed = self.volumes.get(&id).ok_or(InsertError::Unknown(id))?;
        let (volume, mut nodes) = (placed.volume, placed.nodes.clone());
        let leg = nodes.iter().position(|&node| node == from);
        let leg = leg.ok_or(InsertError::NoNode(from))?;
        if from == to {
            return Ok(());
        }
        let stay: Vec<_> = nodes.iter().copied().filter(|&node| node != from).collect();
        self.check_leg(&self.needs(&volume)?, to, &stay)?;
        nodes[leg] = to;
        self.set_nodes(id, volume, nodes);
        Ok(())
    }

    /// Moves legs without a check.
    pub(super) fn set_nodes(&mut self, id: VolumeId, volume: Volume, nodes: Vec<NodeId>) {
        self.remove(id);
        for &node in &nodes {
            self.add_leg(id, &volume, node);
        }
        self.volumes.insert(id, Placed { volume, nodes });
    }

    /// Returns the need of a leg on each device model; `None` for one that has no price for it.
    pub(super) fn needs(&self, volume: &Volume) -> Result<Vec<Option<Need>>, VolumeError> {
        let needs: Vec<_> = self.models.iter().map(|it| volume.need(it)).collect();
        if let Some(Err(error)) = needs.first()
            && needs.iter().all(Result::is_err)
        {
            return Err(*error);
        }
        Ok(needs.into_iter().map(Result::ok).collect())
    }

    /// Returns true if the node is in the failure domain of one of `nodes`.
    pub(super) fn shares_domain(&self, loaded: &Loaded, nodes: &[NodeId]) -> bool {
        let domain = |&id: &NodeId| self.node(id).map(|it| it.node().domain);
        nodes
            .iter()
            .any(|id| domain(id) == Some(loaded.node().domain))
    }

    fn check_leg(
        &self,
        needs: &[Option<Need>],
        node: NodeId,
        others: &[NodeId],
    ) -> Result<(), InsertError> {
        let loaded = self.node(node).ok_or(InsertError::NoNode(node))?;
        if self.shares_domain(loaded, others) {
            return Err(InsertError::Domain(node));
        }
        match &needs[loaded.node().model] {
            Some(need) if loaded.fits(need) => Ok(()),
            _ => Err(InsertError::Full(node)),
        }
    }

    fn add_leg(&mut self, id: VolumeId, volume: &Volume, node: NodeId) {
        let loaded = &mut self.nodes[node.0 as usize];
        if let Ok(need) = volume.need(&self.models[loaded.node().model]) {
            loaded.add(id, &volume.demand, &need);
        }
    }

    fn remove_leg(&mut self, id: VolumeId, volume: &Volume, node: NodeId) {
        let loaded = &mut self.nodes[node.0 as usize];
        let device = &self.models[loaded.node().model];
        if let Ok(need) = volume.need(device) {
            loaded.remove(id, &volume.demand, &need, device);
        }
    }

    /// Returns a node that exists.
    pub(super) fn at(&self, id: NodeId) -> &Loaded {
        &self.nodes[id.0 as usize]
    }

    pub(super) fn model(&self, loaded: &Loaded) -> &DeviceModel {
        &self.models[loaded.node().model]
    }
}
