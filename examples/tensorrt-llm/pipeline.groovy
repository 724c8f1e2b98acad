// The two places of the pipeline that change: what is mounted into a Slurm test, and what stands before pytest.

// Pipelines of merged code publish; all others read. The mount says so too, whatever a stage does.
def publishes() {
    return env.CHANGE_ID == null && env.gitlabMergeRequestIid == null && params.TRIGGER == 'post-merge'
}

// before: "/home/svc_ci/.triton:/root/.triton", writable, in every container
def ondolMounts(cluster) {
    def mode = publishes() ? 'rw' : 'ro'
    return [
        "${cluster.scratchPath}/ondol:/store:${mode}",
        "${cluster.scriptsPath}/ondol.pyz:/usr/local/bin/ondol:ro",  // not in the image yet: one file, Python 3.10 or newer
    ]
}

// The slot before pytest that multi-node stages use for their launcher already: Ondol comes first, so that it reads
// Slurm's variables before a script unsets them, and the ranks of a node share one room.
def pytestUtility(String stage, int nodes) {
    def words = ['ondol', 'run', '--store', '/store', '--tools', 'auto,triton']
    if (stage.contains('Perf')) {
        words += '--frozen'     // compiles nothing new into the store, measures tuning itself, no helper beside the job
    } else if (!publishes()) {
        words += ['--publish', 'never']
    }
    words += '--'
    return (nodes > 1 ? words + 'trtllm-llmapi-launch' : words).join(' ')
}
