//! Everything that can be asked, and the right it takes.

/// What an operation lets its caller do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Permission {
    /// Anybody, without credentials: is it alive.
    Anybody,
    /// See figures about the whole broker.
    Observe,
    /// Send messages to a topic, and decide about own transactions.
    Send,
    /// Read messages of a topic, pending or delivered.
    Read,
    /// Cancel messages of a topic.
    Cancel,
    /// Change pending messages of a topic.
    Change,
    /// Receive messages for a group, and say what became of them.
    Consume,
    /// See topics and groups and their settings.
    See,
    /// Make, change and remove topics and groups, decide about dead letters, and change many
    /// messages at once.
    Manage,
    /// See who changed what.
    Audit,
    /// Say who may do what, and change what concerns the whole broker.
    Admin,
}

/// What the right must cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing.
    Open,
    /// The whole broker.
    Whole,
    /// Anything at all.
    Anything,
    /// The topic of the request.
    Topic,
    /// The topic and the group of the request.
    Group,
    /// The producer group of the request.
    ProducerGroup,
    /// What an id of the request turns out to stand for. Whoever looks it up checks, and answers
    /// for a foreign one as for a missing one.
    Found,
    /// What the content of the request names. Whoever reads it checks.
    Content,
    /// Whatever is listed. Whoever lists leaves out the rest.
    Visible,
}

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) permission: Permission,
    pub(crate) scope: Scope,
}

macro_rules! operations {
    ($($name:ident: $permission:ident $scope:ident;)*) => {
        /// What can be asked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Operation {
            $($name,)*
        }

        impl Operation {
            /// Every operation there is.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it takes.
            pub(crate) const fn rule(self) -> Rule {
                match self {
                    $(Self::$name => Rule {
                        permission: Permission::$permission,
                        scope: Scope::$scope,
                    },)*
                }
            }

            /// Whether it lends messages though it is asked for by a GET, so that a foreign page
            /// must not make a browser ask.
            pub(crate) const fn lends_by_get(self) -> bool {
                matches!(self, Self::ReceiveStream)
            }

            /// Its name, as the OpenAPI document has it.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

#[rustfmt::skip]
operations! {
    Schedule:          Send     Topic;
    Publish:           Send     Topic;
    GetMessage:        Read     Found;
    CancelMessage:     Cancel   Found;
    PatchMessage:      Change   Found;
    DeliverMessage:    Change   Found;
    ListScheduled:     Read     Topic;
    CancelMany:        Manage   Topic;
    RescheduleMany:    Manage   Topic;
    DeliverMany:       Manage   Topic;
    PauseMany:         Manage   Topic;
    ResumeMany:        Manage   Topic;
    ListJobs:          See      Topic;
    GetJob:            See      Topic;
    StopJob:           Manage   Topic;
    ListSeries:        Read     Topic;
    Forecast:          Read     Topic;
    ForecastAll:       Observe  Whole;
    Export:            Read     Topic;
    Import:            Send     Topic;
    ReadPartition:     Read     Topic;
    ListTopics:        See      Visible;
    GetTopic:          See      Topic;
    PutTopic:          Manage   Topic;
    PatchTopic:        Manage   Topic;
    DeleteTopic:       Manage   Topic;
    Receive:           Consume  Group;
    ReceiveStream:     Consume  Group;
    Ack:               Consume  Group;
    Nack:              Consume  Group;
    Extend:            Consume  Group;
    Retry:             Consume  Group;
    ListGroups:        See      Visible;
    GetGroup:          See      Group;
    PutGroup:          Manage   Group;
    PatchGroup:        Manage   Group;
    DeleteGroup:       Manage   Group;
    PauseGroup:        Manage   Group;
    ResumeGroup:       Manage   Group;
    ResetGroup:        Manage   Group;
    GetOffsets:        See      Group;
    PutOffsets:        Consume  Group;
    ListDead:          Read     Group;
    SummarizeDead:     Read     Group;
    Redrive:           Manage   Group;
    GetRedrive:        See      Group;
    Purge:             Manage   Group;
    Drain:             Manage   Group;
    GetDrain:          See      Group;
    GetLevels:         See      Anything;
    PutLevels:         Admin    Whole;
    Prepare:           Send     Content;
    ListTransactions:  Read     Visible;
    GetTransaction:    Read     Found;
    Commit:            Send     Found;
    Rollback:          Send     Found;
    ResumeTransaction: Manage   Found;
    Checks:            Send     ProducerGroup;
    CreateApp:         Admin    Whole;
    ListApps:          Admin    Whole;
    GetApp:            Admin    Whole;
    PatchApp:          Admin    Whole;
    DeleteApp:         Admin    Whole;
    RotateApp:         Admin    Whole;
    DisableApp:        Admin    Whole;
    EnableApp:         Admin    Whole;
    Audit:             Audit    Whole;
    Time:              See      Anything;
    AdvanceTime:       Admin    Whole;
    Live:              Anybody  Open;
    ReadyNow:          Anybody  Open;
    Metrics:           Observe  Whole;
    LegacySend:        Send     Content;
    LegacyCancel:      Cancel   Content;
    Stats:             Observe  Whole;
    Trends:            Observe  Whole;
    Cluster:           Observe  Whole;
    PutCluster:        Admin    Whole;
    Alerts:            Observe  Whole;
    TestAlerts:        Admin    Whole;
    LiveFigures:       Observe  Whole;
    GetSession:        Anybody  Open;
    SignIn:            Anybody  Open;
    SignOut:           Anybody  Open;
    OpenApi:           Anybody  Open;
    Docs:              Anybody  Open;
    DocsFile:          Anybody  Open;
    Console:           Anybody  Open;
    ConsoleFile:       Anybody  Open;
}
