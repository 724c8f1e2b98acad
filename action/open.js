// Before the steps of a job: open a room, and set its variables for all of them.
'use strict';

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { input, ondol, saveState, warn } = require('./ondol.js');

// The Python of now, by its full path: what the job's steps put into PATH does not count when the room is closed.
function resolve(python) {
  const done = spawnSync(python, ['-I', '-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' });
  return done.status === 0 ? done.stdout.trim() : python;
}

function main() {
  const python = resolve(input('python') || 'python3');
  const folder = fs.mkdtempSync(path.join(process.env.RUNNER_TEMP || os.tmpdir(), 'ondol-'));
  const file = path.join(folder, 'room');
  const words = ['open', '--format', 'github', '--room-file', file];
  for (const name of ['store', 'tools', 'publish']) {
    if (input(name)) {
      words.push(`--${name}`, input(name));
    }
  }
  words.push(...input('options').split(/\s+/).filter(Boolean));
  const status = ondol(python, words);
  if (fs.existsSync(file)) {
    saveState('room', fs.readFileSync(file, 'utf8').trim());
    saveState('python', python);
  }
  fs.rmSync(folder, { recursive: true, force: true });
  if (status === 123) {
    process.exitCode = status; // --strict was asked for
  } else if (status) {
    warn(`ondol open ended with status ${status}; the job runs without it`);
  }
}

main();
