//! The registry on ZooKeeper: the session is ZooKeeper's own, and what a node registers are
//! ephemeral nodes of it.
//!
//! ```text
//! /punctual/{cluster}/state/assignment       the assignment
//! /punctual/{cluster}/state/slots            the number of slots asked for, as text
//! /punctual/{cluster}/state/leader           the name of the leader          (ephemeral)
//! /punctual/{cluster}/state/nodes/{name}     who the node is                 (ephemeral)
//! /punctual/{cluster}/state/words/{name}     what it says of its slots       (ephemeral)
//! /punctual/{cluster}/leading/{name}         there while that node leads     (ephemeral)
//! /punctual/{cluster}/beats/{name}           written at each renewal         (ephemeral)
//! ```
//!
//! The client renews the session by itself, but with whatever server it is connected to, and that
//! one may be cut off from the others. So a renewal here is a write, which the majority has to
//! agree to. It stands apart from `state`, which every node watches. `leading/{name}` is what a
//! write of the assignment checks, since `leader` looks alike whoever made it. The session is tried
//! until ZooKeeper itself says that it has expired, however long nobody could be reached.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tracing::debug;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, MultiWriteError, SessionState,
};

use super::assignment::Name;
use super::registry::{Changes, Registry, Revision, Session, Snapshot, Trouble};

/// The shortest deadline of a call that is no renewal: a large assignment takes its time.
const CALL_TIMEOUT_MIN: Duration = Duration::from_secs(3);

const LASTING: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// A cluster's nodes in ZooKeeper.
#[derive(Clone, Debug)]
pub(crate) struct ZooKeeper {
    hosts: String,
    root: Arc<str>,
    lease: Duration,
}

impl ZooKeeper {
    /// The cluster of that name. Nothing is connected yet.
    pub(crate) fn new(endpoints: &[String], cluster: &str, lease: Duration) -> Self {
        let host = |endpoint: &String| {
            let plain = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, rest)| rest);
            plain.trim_end_matches('/').to_owned()
        };
        let hosts: Vec<String> = endpoints.iter().map(host).collect();
        let root = format!("/punctual/{cluster}").into();
        Self { hosts: hosts.join(","), root, lease }
    }

    /// Makes what lasts longer than sessions.
    async fn prepare(&self, client: &Client) -> Result<(), Trouble> {
        for directory in ["state/nodes", "state/words", "leading", "beats"] {
            let path = format!("{}/{directory}", self.root);
            within(self.lease, client.mkdir(&path, &LASTING)).await?;
        }
        Ok(())
    }
}

impl Registry for ZooKeeper {
    type Session = ZooKeeperSession;

    async fn register(&self, name: Name, about: Bytes) -> Result<ZooKeeperSession, Trouble> {
        let connector = Client::connector().with_session_timeout(self.lease);
        let client = within(self.lease, connector.connect(&self.hosts)).await?;
        self.prepare(&client).await?;
        let length = client.session_timeout().min(self.lease);
        let session = ZooKeeperSession {
            registry: self.clone(),
            name,
            length,
            link: Mutex::new(Link { client: Some(client), watching: None }),
            changes: Arc::new(Changes::default()),
            seen: Mutex::default(),
        };
        session.enter(&about).await?;
        session.watch().await?;
        Ok(session)
    }
}

/// A node's session.
pub(crate) struct ZooKeeperSession {
    registry: ZooKeeper,
    name: Name,
    length: Duration,
    link: Mutex<Link>,
    changes: Arc<Changes>,
    seen: Mutex<Seen>,
}

/// How the service is reached at the moment.
struct Link {
    /// `None` once the session was ended.
    client: Option<Client>,
    watching: Option<JoinHandle<()>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
    }
}

/// What was read before.
#[derive(Default)]
struct Seen {
    /// The state of the assignment, and ZooKeeper's number for it.
    assignment: Option<(Revision, i32)>,
    /// Who the nodes are: that never changes.
    nodes: HashMap<Name, Bytes>,
}

impl ZooKeeperSession {
    fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.root)
    }

    fn own_path(&self, kind: &str) -> String {
        format!("{}/{kind}/{}", self.registry.root, self.name)
    }

    fn client(&self) -> Result<Client, Trouble> {
        self.link.lock().client.clone().ok_or(Trouble::Gone)
    }

    fn call_timeout(&self) -> Duration {
        self.length.max(CALL_TIMEOUT_MIN)
    }

    /// Registers the node.
    async fn enter(&self, about: &[u8]) -> Result<(), Trouble> {
        let client = self.client()?;
        let mut writer = client.new_multi_writer();
        let add = [(self.own_path("beats"), &[][..]), (self.own_path("state/nodes"), about)];
        for (path, data) in add {
            writer.add_create(&path, data, &EPHEMERAL).map_err(trouble)?;
        }
        let commit = async { writer.commit().await.map_err(Error::from) };
        within(self.call_timeout(), commit).await.map(|_made| ())
    }

    /// Begins to tell of changes.
    async fn watch(&self) -> Result<(), Trouble> {
        let client = self.client()?;
        let state = self.path("state");
        let watch = client.watch(&state, AddWatchMode::PersistentRecursive);
        let mut watcher = within(self.call_timeout(), watch).await?;
        let (changes, words) = (self.changes.clone(), self.path("state/words/"));
        let watching = tokio::runtime::Handle::current().spawn(async move {
            loop {
                let event = watcher.changed().await;
                if event.path.is_empty() {
                    // What happened while there was no connection is not told.
                    changes.tell_all();
                    if event.session_state.is_terminated() {
                        return;
                    }
                } else if event.path.starts_with(&words) {
                    changes.tell_words();
                } else {
                    changes.tell_state();
                }
            }
        });
        if let Some(before) = self.link.lock().watching.replace(watching) {
            before.abort();
        }
        self.changes.tell_all();
        Ok(())
    }

    /// Takes the session up again after the client has given up on it.
    async fn revive(&self) -> Result<(), Trouble> {
        let session = self.client()?.into_session();
        let connector =
            Client::connector().with_session_timeout(self.registry.lease).with_session(session);
        let connect = connector.connect(&self.registry.hosts);
        let client = match tokio::time::timeout(self.length, connect).await {
            Ok(Ok(client)) => client,
            Ok(Err(Error::SessionExpired)) => return Err(Trouble::Gone),
            Ok(Err(error)) => return Err(trouble(error)),
            Err(_elapsed) => return Err(late()),
        };
        // This server may be behind the one before.
        let state = self.path("state");
        within(self.length, client.sync(&state)).await?;
        self.link.lock().client = Some(client);
        self.watch().await
    }

    /// The assignment, if it is not known.
    async fn assignment(
        &self,
        client: &Client,
        known: Option<Revision>,
    ) -> Result<(Option<Revision>, Option<Bytes>), Error> {
        let path = self.path("state/assignment");
        let Some(stat) = client.check_stat(&path).await? else {
            self.seen.lock().assignment = None;
            return Ok((None, None));
        };
        let revision = Revision(stat.mzxid.cast_unsigned());
        if known == Some(revision) {
            self.seen.lock().assignment = Some((revision, stat.version));
            return Ok((known, None));
        }
        let (data, stat) = client.get_data(&path).await?;
        let revision = Revision(stat.mzxid.cast_unsigned());
        self.seen.lock().assignment = Some((revision, stat.version));
        Ok((Some(revision), Some(data.into())))
    }

    /// The nodes that are there. Asks only for those that are new.
    async fn nodes(&self, client: &Client) -> Result<Vec<(Name, Bytes)>, Error> {
        let directory = self.path("state/nodes");
        let names: Vec<Name> =
            client.list_children(&directory).await?.into_iter().map(Name::from).collect();
        let unknown: Vec<Name> = {
            let mut seen = self.seen.lock();
            seen.nodes.retain(|name, _| names.contains(name));
            names.iter().filter(|name| !seen.nodes.contains_key(*name)).cloned().collect()
        };
        let read = self.contents(client, "state/nodes", unknown).await?;
        let mut seen = self.seen.lock();
        seen.nodes.extend(read);
        Ok(seen.nodes.iter().map(|(name, about)| (name.clone(), about.clone())).collect())
    }

    /// What stands under these names. What is gone meanwhile is left out.
    async fn contents(
        &self,
        client: &Client,
        directory: &str,
        names: Vec<Name>,
    ) -> Result<Vec<(Name, Bytes)>, Error> {
        let reads = names.into_iter().map(|name| {
            let get = client.get_data(&self.path(&format!("{directory}/{name}")));
            async move {
                match get.await {
                    Ok((data, _)) => Ok(Some((name, Bytes::from(data)))),
                    Err(Error::NoNode) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        });
        Ok(try_join_all(reads).await?.into_iter().flatten().collect())
    }

    /// The text of a node, if there is one.
    async fn text(&self, client: &Client, path: &str) -> Result<Option<String>, Error> {
        match client.get_data(&self.path(path)).await {
            Ok((data, _)) => Ok(String::from_utf8(data).ok()),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Everything there is. The assignment comes first: a node that it names and that is not
    /// among the nodes is then gone, not new.
    async fn read_all(&self, client: &Client, known: Option<Revision>) -> Result<Snapshot, Error> {
        let (revision, document) = self.assignment(client, known).await?;
        let asked = self.text(client, "state/slots").await?;
        let leader = self.text(client, "state/leader").await?.map(Name::from);
        let members = self.nodes(client).await?;
        let words = if leader.as_ref() == Some(&self.name) {
            let names = client.list_children(&self.path("state/words")).await?;
            let names = names.into_iter().map(Name::from).collect();
            self.contents(client, "state/words", names).await?
        } else {
            Vec::new()
        };
        let asked = asked.and_then(|text| text.parse().ok());
        Ok(Snapshot { revision, document, asked, members, words, leader })
    }

    /// Writes a node of this session, or one that lasts.
    async fn put(
        &self,
        path: &str,
        data: &[u8],
        options: &CreateOptions<'_>,
    ) -> Result<(), Trouble> {
        let client = self.client()?;
        let put = async {
            match client.set_data(path, data, None).await {
                Err(Error::NoNode) => match client.create(path, data, options).await {
                    // Somebody else made it: theirs or ours, whichever was last.
                    Err(Error::NodeExists) => client.set_data(path, data, None).await.map(|_| ()),
                    made => made.map(|_| ()),
                },
                written => written.map(|_| ()),
            }
        };
        within(self.call_timeout(), put).await
    }
}

impl Session for ZooKeeperSession {
    fn lease(&self) -> Duration {
        self.length
    }

    async fn renew(&self) -> Result<(), Trouble> {
        let client = self.client()?;
        if client.state().is_terminated() {
            self.revive().await?;
            return Err(Trouble::Unavailable("connected to ZooKeeper again".into()));
        }
        let beat = client.set_data(&self.own_path("beats"), &[], None);
        // A third of a lease at most, so that there is time for another try.
        match tokio::time::timeout(self.length / 3, beat).await {
            Ok(Ok(_stat)) => Ok(()),
            Ok(Err(Error::NoNode)) => Err(Trouble::Gone),
            Ok(Err(error)) => Err(trouble(error)),
            Err(_elapsed) => Err(late()),
        }
    }

    async fn read(&self, known: Option<Revision>) -> Result<Snapshot, Trouble> {
        let client = self.client()?;
        within(self.call_timeout(), self.read_all(&client, known)).await
    }

    async fn lead(&self) -> Result<(), Trouble> {
        let client = self.client()?;
        let mut writer = client.new_multi_writer();
        let name = self.name.as_bytes();
        writer.add_create(&self.path("state/leader"), name, &EPHEMERAL).map_err(trouble)?;
        writer.add_create(&self.own_path("leading"), &[], &EPHEMERAL).map_err(trouble)?;
        let commit = async {
            match writer.commit().await {
                // There is one.
                Ok(_) | Err(MultiWriteError::OperationFailed { source: Error::NodeExists, .. }) => {
                    Ok(())
                }
                Err(error) => Err(Error::from(error)),
            }
        };
        within(self.call_timeout(), commit).await
    }

    async fn write(&self, expected: Option<Revision>, document: Bytes) -> Result<bool, Trouble> {
        let seen = self.seen.lock().assignment;
        if seen.map(|(revision, _)| revision) != expected {
            return Ok(false);
        }
        let client = self.client()?;
        let path = self.path("state/assignment");
        let mut writer = client.new_multi_writer();
        writer.add_check_version(&self.own_path("leading"), 0).map_err(trouble)?;
        match seen {
            Some((_, version)) => writer.add_set_data(&path, &document, Some(version)),
            None => writer.add_create(&path, &document, &LASTING),
        }
        .map_err(trouble)?;
        let commit = async {
            match writer.commit().await {
                Ok(_) => Ok(true),
                Err(MultiWriteError::OperationFailed {
                    source: Error::NoNode | Error::BadVersion | Error::NodeExists,
                    ..
                }) => Ok(false),
                Err(error) => Err(Error::from(error)),
            }
        };
        within(self.call_timeout(), commit).await
    }

    async fn say(&self, word: Bytes) -> Result<(), Trouble> {
        self.put(&self.own_path("state/words"), &word, &EPHEMERAL).await
    }

    async fn ask(&self, slots: u32) -> Result<(), Trouble> {
        self.put(&self.path("state/slots"), slots.to_string().as_bytes(), &LASTING).await
    }

    async fn changed(&self, leading: bool) {
        self.changes.wait(leading).await;
    }

    async fn end(&self) {
        let (client, watching) = {
            let mut link = self.link.lock();
            (link.client.take(), link.watching.take())
        };
        if let Some(watching) = watching {
            watching.abort();
        }
        let Some(client) = client else { return };
        let mut states = client.state_watcher();
        // The session is closed once nobody has the client any more.
        drop(client);
        let closed = async {
            while !states.peek_state().is_terminated() {
                let _state: SessionState = states.changed().await;
            }
        };
        if tokio::time::timeout(self.length, closed).await.is_err() {
            debug!("the session was not closed and ends by itself");
        }
    }
}

/// What is over with the session is left to the renewal, which asks ZooKeeper itself: the client
/// gives up on a session by its own clock.
fn trouble(error: Error) -> Trouble {
    Trouble::Unavailable(format!("ZooKeeper: {error}").into())
}

fn late() -> Trouble {
    Trouble::Unavailable("ZooKeeper did not answer in time".into())
}

async fn within<T>(
    span: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(span, call).await {
        Ok(answer) => answer.map_err(trouble),
        Err(_elapsed) => Err(late()),
    }
}
