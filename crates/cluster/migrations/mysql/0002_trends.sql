-- What each node has counted in all, and the point of the trends that is under way there.
CREATE TABLE IF NOT EXISTS punctual_figures (
    node VARBINARY(200) NOT NULL,
    content LONGBLOB NOT NULL,
    PRIMARY KEY (node)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What ten minutes brought on each node.
CREATE TABLE IF NOT EXISTS punctual_trends (
    starts_at BIGINT UNSIGNED NOT NULL,
    node VARBINARY(200) NOT NULL,
    content LONGBLOB NOT NULL,
    PRIMARY KEY (starts_at, node)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
