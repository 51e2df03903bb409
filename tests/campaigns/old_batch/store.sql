BEGIN TRANSACTION;
CREATE TABLE apps (
	name TEXT NOT NULL, 
	description TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "apps" VALUES('old','{"name": "old", "command": [], "shell": "sleep 0.3; echo \"took $(( $PARAM_n * 2 )) s\"", "directory": "@FOLDER@", "working_directory": "{run_dir}", "parameters": [{"name": "n", "type": "integer", "scaled_down": {"values": [1, 2], "low": null, "high": null}, "full_scale": {"values": [1, 2], "low": null, "high": null}, "target": null}], "scaled_down_resources": {"cores": [1], "memory_bytes": [null], "gpus": [0], "nodes": [1]}, "full_scale_resources": {"cores": [1], "memory_bytes": [null], "gpus": [0], "nodes": [1]}, "environment": {}, "inherited": [], "setup": [], "cleanup": [], "repetitions": 1, "time_limit_s": 300.0, "log_limit_bytes": 67108864, "phases": [{"name": "took", "pattern": "took ([0-9]+) s", "file": null, "key": null, "combine": "mean"}], "estimate": null, "per": null, "where": [], "runner": "slurm", "submission": {"partition": null, "account": null, "cluster": null, "options": {}, "sample": true, "without": []}, "version": 0}');
CREATE TABLE batches (
	id TEXT NOT NULL, 
	app TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	description TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "batches" VALUES('67ebbb40d1344edc','old','1','{"id": "67ebbb40d1344edc", "app": "old", "name": "old-67ebbb40d1344edc", "directory": "@FOLDER@/.foretell/batches/old/67ebbb40d1344edc", "submission": {"partition": null, "account": null, "cluster": null, "options": {"hold": ""}, "sample": true, "without": []}, "run_ids": ["76b57f6873d76c08-0", "1b2ce0d6d04168fd-0"], "submitter": {"token": "281dfd63e30543d798c144d14aed7c63", "hostname": "login1", "boot_id": "", "pid": 13748, "started_at": 4445.12}, "created_at": "2025-01-02T16:44:28.279053+00:00"}');
CREATE TABLE foretell_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT foretell_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "foretell_version" VALUES('0005');
CREATE TABLE history_counts (
	app TEXT NOT NULL, 
	jobs BIGINT NOT NULL, 
	PRIMARY KEY (app)
);
CREATE TABLE history_marks (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE job_clusters (
	number INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (name)
);
CREATE TABLE job_kinds (
	id INTEGER NOT NULL, 
	cluster TEXT NOT NULL, 
	user TEXT NOT NULL, 
	account TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	name TEXT NOT NULL, 
	work_directory TEXT NOT NULL, 
	command TEXT NOT NULL, 
	app TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE jobs (
	cluster INTEGER NOT NULL, 
	job BIGINT NOT NULL, 
	task INTEGER NOT NULL, 
	submitted_at BIGINT NOT NULL, 
	kind BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	started_at BIGINT, 
	ended_at BIGINT, 
	elapsed_s BIGINT NOT NULL, 
	limit_s BIGINT, 
	nodes INTEGER NOT NULL, 
	cores INTEGER NOT NULL, 
	gpus INTEGER NOT NULL, 
	memory_bytes BIGINT, 
	cpu_s DOUBLE, 
	peak_memory_bytes BIGINT, 
	read_bytes BIGINT, 
	written_bytes BIGINT, 
	PRIMARY KEY (cluster, job, task, submitted_at)
)
 WITHOUT ROWID

;
CREATE TABLE models (
	app TEXT NOT NULL, 
	card TEXT NOT NULL, 
	extra TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	blob BLOB NOT NULL, 
	run_ids TEXT NOT NULL, 
	PRIMARY KEY (app)
);
CREATE TABLE runs (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	app TEXT NOT NULL, 
	scale TEXT NOT NULL, 
	repetition INTEGER NOT NULL, 
	parameters TEXT NOT NULL, 
	allocation TEXT NOT NULL, 
	state TEXT NOT NULL, 
	elapsed_s DOUBLE, 
	cpu_s DOUBLE, 
	peak_memory_bytes BIGINT, 
	read_bytes BIGINT, 
	written_bytes BIGINT, 
	context_switches BIGINT, 
	gpu_utilisation DOUBLE, 
	gpu_memory_bytes BIGINT, 
	phases TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	exit_code INTEGER, 
	log_tail TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	started_at DATETIME, 
	ended_at DATETIME, 
	source TEXT NOT NULL, 
	attempt INTEGER DEFAULT '1' NOT NULL, 
	owner_token TEXT, 
	owner_hostname TEXT, 
	owner_boot_id TEXT, 
	owner_pid BIGINT, 
	owner_started_at DOUBLE, 
	heartbeat_at DATETIME, job_id TEXT, allocated TEXT, version INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'76b57f6873d76c08-0','old','FS',0,'{"n": 1}','{"partition": "owens"}','running',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','{}',NULL,'','',NULL,NULL,'local',1,'67ebbb40d1344edc','','',0,0.0,'2025-01-02 16:44:28.279076',NULL,NULL,0);
INSERT INTO "runs" VALUES(2,'1b2ce0d6d04168fd-0','old','FS',0,'{"n": 2}','{"partition": "owens"}','running',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','{}',NULL,'','',NULL,NULL,'local',1,'67ebbb40d1344edc','','',0,0.0,'2025-01-02 16:44:28.279076',NULL,NULL,0);
CREATE INDEX runs_by_app ON runs (app, number);
CREATE INDEX runs_by_state ON runs (app, state, number);
CREATE INDEX runs_by_owner ON runs (owner_token) WHERE owner_token IS NOT NULL;
CREATE INDEX batches_by_app ON batches (app);
CREATE INDEX job_kinds_by_app ON job_kinds (app);
CREATE INDEX jobs_by_kind ON jobs (kind, submitted_at);
COMMIT;
