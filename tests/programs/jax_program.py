"""A JAX program; what was compiled and what came from the cache is counted by JAX's own events."""

from __future__ import annotations

import collections
import json

import jax
import jax.monitoring
import jax.numpy as jnp

EVENTS: collections.Counter[str] = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: EVENTS.update([event.rpartition("/")[2]]))


@jax.jit
def mix(x: jax.Array) -> jax.Array:
    return jnp.sin(x) @ jnp.cos(x).T


answer = float(mix(jnp.ones((64, 64)))[0, 0])
print(json.dumps({"made": EVENTS["cache_misses"], "reused": EVENTS["cache_hits"], "answer": round(answer, 4)}))
