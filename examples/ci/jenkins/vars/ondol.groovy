// A shared-library step: ondol(store: '/ci-cache/ondol', tools: 'triton') { sh 'pytest tests/ops' }
// Opens a room on this node, runs the body with its variables, closes it however the body ends.
def call(Map options = [:], Closure body) {
    def file = "${env.WORKSPACE_TMP ?: env.WORKSPACE}/ondol-room-${env.BUILD_TAG ?: 'build'}"
    withEnv(["ONDOL_ROOM_FILE=${file}", "OPEN_STORE=${options.store ?: ''}", "OPEN_TOOLS=${options.tools ?: 'auto'}"]) {
        def exports = sh(returnStdout: true, label: 'ondol open', script: '''
            rm -f "$ONDOL_ROOM_FILE"
            ondol open --store "$OPEN_STORE" --tools "$OPEN_TOOLS" --format json --room-file "$ONDOL_ROOM_FILE" |
                python3 -c 'import json, sys; print("\\n".join("=".join(pair) for pair in json.load(sys.stdin)["env"].items()))' || true
        ''').trim()
        def ended = 'failure'
        try {
            withEnv(exports ? exports.readLines() : []) {
                body()
            }
            ended = currentBuild.currentResult == 'SUCCESS' ? 'success' : 'failure'
        } finally {
            withEnv(["ENDED=${ended}"]) {
                sh(label: 'ondol close', script: '''
                    if [ -s "$ONDOL_ROOM_FILE" ]; then
                        ondol close "$(cat "$ONDOL_ROOM_FILE")" --status "$ENDED"
                        rm -f "$ONDOL_ROOM_FILE"
                    fi
                ''')
            }
        }
    }
}
