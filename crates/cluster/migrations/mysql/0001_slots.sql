-- Every statement may run again: a server that went down in the middle is migrated from the start.

-- Who may write to a slot. Writers lock its row in share mode for as long as their transaction takes, so a
-- take-over, which changes it, waits for them. swept grows when hours of the slot are forgotten: who remembers
-- which of them there are sees by it that some are gone.
CREATE TABLE IF NOT EXISTS punctual_slots (
    slot SMALLINT UNSIGNED NOT NULL,
    term BIGINT UNSIGNED NOT NULL,
    swept BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (slot)
) ENGINE = InnoDB;

-- What an owner writes about its slot every second or so. Not in the row above, so that nobody waits for it.
CREATE TABLE IF NOT EXISTS punctual_marks (
    slot SMALLINT UNSIGNED NOT NULL,
    claimed_until BIGINT UNSIGNED NOT NULL,
    message_ended_before BIGINT UNSIGNED NOT NULL,
    retry_ended_before BIGINT UNSIGNED NOT NULL,
    counters_until BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (slot)
) ENGINE = InnoDB;

-- Messages where they stand, and where they stood until they are forgotten. It has no second index, since
-- that would cost as much as the row itself: punctual_hours tells a listing where to look, punctual_ended
-- what is to be forgotten.
--
-- state: 0 scheduled, 1 paused, 2 prepared, 3 delivered, 4 cancelled, 5 moved. A moved message has a row at
-- its first key, which is that of its id; moved_due and moved_sequence say where it stands. When it ends,
-- both rows do: the one where it stood as 6 delivered or 7 cancelled, because it is not that of its id.
CREATE TABLE IF NOT EXISTS punctual_entries (
    slot SMALLINT UNSIGNED NOT NULL,
    lane TINYINT UNSIGNED NOT NULL,
    due BIGINT UNSIGNED NOT NULL,
    sequence BIGINT UNSIGNED NOT NULL,
    topic MEDIUMINT UNSIGNED NOT NULL,
    topic_partition SMALLINT UNSIGNED NOT NULL,
    state TINYINT UNSIGNED NOT NULL,
    ended_at BIGINT UNSIGNED NULL,
    moved_due BIGINT UNSIGNED NULL,
    moved_sequence BIGINT UNSIGNED NULL,
    content LONGBLOB NOT NULL,
    PRIMARY KEY (slot, lane, due, sequence)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- In which hours of which slots a topic may have something pending. A row is there before the first entry of
-- its hour is, and until the hour is long past, however much of it has ended meanwhile.
CREATE TABLE IF NOT EXISTS punctual_hours (
    topic MEDIUMINT UNSIGNED NOT NULL,
    lane TINYINT UNSIGNED NOT NULL,
    hour INT UNSIGNED NOT NULL,
    slot SMALLINT UNSIGNED NOT NULL,
    PRIMARY KEY (topic, lane, hour, slot),
    KEY old (slot, lane, hour)
) ENGINE = InnoDB;

-- Rows of entries by the time at which they ended: what is to be forgotten. It grows at its ends alone.
CREATE TABLE IF NOT EXISTS punctual_ended (
    slot SMALLINT UNSIGNED NOT NULL,
    ended_at BIGINT UNSIGNED NOT NULL,
    due BIGINT UNSIGNED NOT NULL,
    sequence BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (slot, ended_at, due, sequence)
) ENGINE = InnoDB;

-- Whose an own id is. The second index finds the names of messages that are forgotten.
CREATE TABLE IF NOT EXISTS punctual_names (
    topic MEDIUMINT UNSIGNED NOT NULL,
    name VARBINARY(256) NOT NULL,
    print BIGINT UNSIGNED NOT NULL,
    due BIGINT UNSIGNED NOT NULL,
    sequence BIGINT UNSIGNED NOT NULL,
    message_topic MEDIUMINT UNSIGNED NOT NULL,
    topic_partition SMALLINT UNSIGNED NOT NULL,
    PRIMARY KEY (topic, name),
    KEY message (sequence, due)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How much is pending in which hour; 0 is the hour of what is parked.
CREATE TABLE IF NOT EXISTS punctual_counts (
    topic MEDIUMINT UNSIGNED NOT NULL,
    lane TINYINT UNSIGNED NOT NULL,
    kind TINYINT UNSIGNED NOT NULL,
    hour INT UNSIGNED NOT NULL,
    slot SMALLINT UNSIGNED NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (topic, lane, kind, hour, slot),
    KEY old (slot, lane, hour)
) ENGINE = InnoDB;

-- The sums of those, so that all topics can be told without all their hours.
CREATE TABLE IF NOT EXISTS punctual_totals (
    lane TINYINT UNSIGNED NOT NULL,
    topic MEDIUMINT UNSIGNED NOT NULL,
    slot SMALLINT UNSIGNED NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (lane, topic, slot)
) ENGINE = InnoDB;

-- Finished messages, where they are to be kept.
CREATE TABLE IF NOT EXISTS punctual_archive (
    slot SMALLINT UNSIGNED NOT NULL,
    lane TINYINT UNSIGNED NOT NULL,
    due BIGINT UNSIGNED NOT NULL,
    sequence BIGINT UNSIGNED NOT NULL,
    topic MEDIUMINT UNSIGNED NOT NULL,
    topic_partition SMALLINT UNSIGNED NOT NULL,
    state TINYINT UNSIGNED NOT NULL,
    ended_at BIGINT UNSIGNED NOT NULL,
    content LONGBLOB NOT NULL,
    PRIMARY KEY (slot, lane, due, sequence)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The last revision of each kind of document. Its row is locked by whoever changes one of them, so
-- revisions are committed in their order and a reader misses none.
CREATE TABLE IF NOT EXISTS punctual_kinds (
    kind VARBINARY(64) NOT NULL,
    revision BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (kind)
) ENGINE = InnoDB;

-- What all nodes share. A deleted document stays without content, so that everybody hears of it.
CREATE TABLE IF NOT EXISTS punctual_documents (
    kind VARBINARY(64) NOT NULL,
    name VARBINARY(700) NOT NULL,
    revision BIGINT UNSIGNED NOT NULL,
    content LONGBLOB NULL,
    PRIMARY KEY (kind, name),
    UNIQUE KEY changes (kind, revision)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
