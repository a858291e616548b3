/* C interface of the transport, which sends a Mesos master's calls to the Longshare service and receives its decisions.
 *
 * The adapter is compiled with Mesos's headers and without gRPC. The transport is linked with gRPC and without Mesos.
 * The adapter loads the transport with
 *
 *     dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
 *
 * and looks up LONGSHARE_TRANSPORT_SYMBOL, the only symbol that the library exports. The library then stays in memory:
 * dlclose does not unload it. Messages are serialised messages of proto/allocator/contract/allocator.proto. The transport
 * parses only the fields that it needs.
 *
 * The owner is the caller of this interface, that is, the adapter. One transport keeps one session with the service.
 * The transport connects, sends Hello, requests a snapshot from the owner and sends the snapshot. The transport then
 * sends events in the order in which the owner pushed them. If the stream breaks or the queue exceeds a limit, the
 * transport drops the queue and requests a snapshot. The queue's memory is therefore bounded, and no caller waits for
 * the network.
 *
 * Threads. Each transport has one thread, which makes all callbacks, one at a time. Any thread may call `push`,
 * `flush`, `snapshot` and `statistics`, also from within a callback. The owner must order its calls. It calls
 * `push`, `flush` and `snapshot` under the same lock (or from the same actor) that protects the owner's state. A
 * snapshot then contains every earlier change, and every later change is pushed after the snapshot. The transport holds
 * no lock during a callback, so a callback may take the owner's lock.
 *
 * Blocking. Only `destroy` blocks. `push` and `snapshot` copy their message; `flush` wakes the transport's thread.
 *
 * Failure. No function throws or aborts, and no callback may throw or abort. Only pointers marked "may be NULL" may be NULL.
 */

#ifndef LONGSHARE_TRANSPORT_H
#define LONGSHARE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LONGSHARE_TRANSPORT_SYMBOL "longshare_transport_interface"

/* Version of this interface. Each change of the interface increments the version. */
#define LONGSHARE_TRANSPORT_VERSION 2u

/* The master's end of one session. Opaque to the owner. */
struct longshare_transport;

/* Address and TLS files of the service, timeouts, and limits of the queue. All durations are in milliseconds. */
struct longshare_transport_settings {
  const char* address;        /* address of the service: unix:///PATH or HOST:PORT */
  const char* authority;      /* PEM file of the CA that signed the service's certificate; NULL: no TLS */
  const char* certificate;    /* PEM file of the client certificate, for mutual TLS; may be NULL */
  const char* key;            /* PEM file of the client certificate's private key; may be NULL */
  int insecure;               /* not 0: allow remote addresses without TLS */
  uint64_t connect_timeout;   /* from the start of an attempt until the service's Welcome arrives */
  uint64_t first_retry;       /* pause before the first retry; each failure doubles the pause, and jitter shortens it */
  uint64_t last_retry;        /* longest pause between two attempts */
  uint64_t keepalive_time;    /* silence after which the transport sends a keepalive ping */
  uint64_t keepalive_timeout; /* time for the answer to a ping; after that, the stream is broken */
  uint64_t queue_events;      /* largest number of events in the queue */
  uint64_t queue_bytes;       /* largest number of bytes in the queue */
};

/* Callbacks that the owner supplies. The transport's thread makes them. Their data is valid during the call only. */
struct longshare_transport_owner {
  void* context; /* first argument of each callback; may be NULL */

  /* The service answered Hello on a new stream. `welcome` is a serialised Welcome. */
  void (*connected)(void* context, const void* welcome, size_t size);

  /* The transport needs a snapshot: the owner calls `snapshot`, now or soon, from any thread. Events that are pushed before
   * that call get numbers and are not sent, because the snapshot will contain them. `reason` is text for the log. */
  void (*snapshot_wanted)(void* context, const char* reason);

  /* The service sent decisions, perhaps empty ones. `decisions` is a serialised Decisions. `applied_sequence` is the number
   * of the last event that the service had applied. After each `snapshot` and each `flush` the service sends decisions that
   * reflect it, unless the transport requests a snapshot or the stream breaks first. If `Decisions.more` is set, another call
   * with the same `applied_sequence` follows, and only the last of these calls answers the events.
   *
   * The transport withholds decisions made before the latest snapshot, because the service has forgotten them. The owner
   * must make one check: ignore the decisions if `applied_sequence` is less than the return value of the latest
   * `snapshot`. In that case, the owner made the snapshot while this callback waited for the owner's lock. */
  void (*decisions)(void* context, uint64_t applied_sequence, const void* decisions, size_t size);

  /* The stream that `connected` reported has ended. The service will send no more replies to earlier events. `destroy` does
   * not make this callback. */
  void (*disconnected)(void* context, const char* reason);

  /* Text for the log, with LONGSHARE_TRANSPORT_INFO or _WARNING as `severity`. Repeated failures with the same reason are
   * logged once. */
  void (*log)(void* context, int severity, const char* text);
};

#define LONGSHARE_TRANSPORT_INFO 0
#define LONGSHARE_TRANSPORT_WARNING 1

/* Counters and gauges of a transport. */
struct longshare_transport_statistics {
  uint64_t connected;      /* 1: the service answered Hello on the current stream; else 0 */
  uint64_t synchronised;   /* 1: connected, latest snapshot answered, and the service serves this master; else 0 */
  uint64_t sessions;       /* streams on which the service answered Hello */
  uint64_t resyncs;        /* snapshots sent after the first of each stream */
  uint64_t overflows;      /* times that the transport dropped a full queue */
  uint64_t queued_events;  /* events pushed and not yet passed to gRPC */
  uint64_t queued_bytes;   /* bytes of the queued snapshot and events */
  uint64_t messages_sent;  /* Snapshot and Events messages sent */
  uint64_t unanswered;     /* messages sent on the current stream and not yet answered */
  uint64_t round_trip_ns;  /* for the last answered message, from passing it to gRPC; 0: none was answered */
};

/* The function table that LONGSHARE_TRANSPORT_SYMBOL returns. The table stays valid until the process ends. */
struct longshare_transport_api {
  /* The library's LONGSHARE_TRANSPORT_VERSION. If the header has another version, the caller must not use the other fields. */
  uint32_t version;

  /* Sets every field except `address` to its default. Never fails. */
  void (*defaults)(struct longshare_transport_settings* settings);

  /* Checks the settings, copies them and creates a transport. The transport does nothing until `start`.
   *
   * Returns NULL if a setting is invalid, and writes all problems and their remedies into `error`, one per line. The text
   * is cut to `error_size` bytes, including the final zero. Each problem begins with the name of its setting and a colon.
   * An unreachable service is not an error. */
  struct longshare_transport* (*create)(const struct longshare_transport_settings* settings, char* error, size_t error_size);

  /* Starts to connect, and retries until `destroy`. The owner calls this function once. `hello` is a serialised Hello. The
   * transport copies `owner` and `hello`. Callbacks may start before the function returns. Returns 0, or -1 if the transport
   * was started before or the system cannot create a thread. */
  int (*start)(struct longshare_transport* transport, const struct longshare_transport_owner* owner, const void* hello,
               size_t size);

  /* Assigns a sequence number to an event and queues the event. The next `flush` releases the event. All released events
   * that are not yet sent go into one message, so that the events of one operation (an operator's RESERVE) stay together.
   *
   * `event` is a serialised Event without `sequence`; the transport adds the number. Returns the sequence number, also if
   * there is no stream and the event is dropped. Numbers begin with 1; each event and each snapshot increments the number.
   * If the queue is full or memory is exhausted, the transport drops the whole queue and requests a snapshot. */
  uint64_t (*push)(struct longshare_transport* transport, const void* event, size_t size);

  /* Releases all events that have been pushed, so that the transport sends them. The transport may have sent the first events
   * before, in messages that the next one continues (`Events.more`). The Hello must therefore have version 4 or later. */
  void (*flush)(struct longshare_transport* transport);

  /* Replaces the queue with a snapshot and sends the snapshot. The owner calls this function after `snapshot_wanted`, or
   * when the owner detects that its state and the service's state differ. The owner receives no replies to earlier events.
   *
   * `snapshot` is a serialised Snapshot without `sequence`; the transport adds the number. Returns the sequence number, or
   * 0 if the snapshot was not queued. Without a stream, the transport requests a snapshot when the next stream begins. If
   * memory is exhausted, the transport requests a snapshot again. */
  uint64_t (*snapshot)(struct longshare_transport* transport, const void* snapshot, size_t size);

  /* Writes the present values into `statistics`. */
  void (*statistics)(const struct longshare_transport* transport, struct longshare_transport_statistics* statistics);

  /* Ends the session, waits for the transport's thread and frees the transport. The function also waits for a running
   * callback. The caller must therefore hold no lock that a callback takes, and must not be a callback. After the function
   * returns, the transport makes no callback. */
  void (*destroy)(struct longshare_transport* transport);
};

/* The exported function. Returns the function table. */
const struct longshare_transport_api* longshare_transport_interface(void);

#ifdef __cplusplus
}
#endif

#endif
