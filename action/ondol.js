// Starts Ondol from this action's own checkout: nothing is installed, and no step can put another one in its place
// by PYTHONPATH. Trouble of ours is a warning of the step, never its failure.
'use strict';

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const SOURCE = path.join(__dirname, '..', 'src');
const START = 'import sys; sys.path.insert(0, sys.argv.pop(1)); from ondol.cli.main import run; run()';

function input(name) {
  return (process.env[`INPUT_${name.toUpperCase()}`] || '').trim();
}

function warn(text) {
  process.stdout.write(`::warning title=Ondol::${text.replace(/%/g, '%25').replace(/\r/g, '%0D').replace(/\n/g, '%0A')}\n`);
}

// Ondol's exit status; null if it could not be started.
function ondol(python, words) {
  const done = spawnSync(python, ['-I', '-c', START, SOURCE, ...words], { stdio: ['ignore', 'inherit', 'inherit'] });
  if (done.error) {
    warn(`${python} cannot be started: ${done.error.message}; the job runs without Ondol`);
    return null;
  }
  return done.status === null ? 1 : done.status;
}

function saveState(name, value) {
  fs.appendFileSync(process.env.GITHUB_STATE, `${name}=${value}\n`);
}

module.exports = { input, ondol, saveState, warn };
