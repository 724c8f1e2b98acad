// After the job, however it ended: harvest the room, publish by the job's event, give the variables back.
'use strict';

const { input, ondol, warn } = require('./ondol.js');

function main() {
  const room = process.env.STATE_room;
  if (!room) {
    return; // none was opened
  }
  // The runner evaluates the input's default again for this step. Anything but a clear success publishes nothing.
  const status = ['success', 'cancelled'].includes(input('status')) ? input('status') : 'failure';
  const ended = ondol(process.env.STATE_python || 'python3', ['close', room, '--status', status, '--format', 'github']);
  if (ended === 122 || ended === 123) {
    process.exitCode = ended; // --require-warm or --strict was asked for
  } else if (ended) {
    warn(`ondol close ended with status ${ended}`);
  }
}

main();
