-- Forms of memory that a deployment refused, seen by the same request passing without memory.

CREATE TABLE refusals (
    deployment TEXT NOT NULL,
    form       TEXT NOT NULL,
    at         TEXT NOT NULL,
    PRIMARY KEY (deployment, form)
) STRICT, WITHOUT ROWID;
