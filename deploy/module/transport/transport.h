/* Carries the calls of a Mesos master to the Longshare service and its decisions back: the C interface.
 *
 * The adapter (Mesos's headers, no gRPC) loads this library (gRPC, no Mesos) with
 *
 *     dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
 *
 * and asks it for LONGSHARE_TRANSPORT_SYMBOL, its only symbol. The library stays in memory from then on; dlclose does
 * nothing. Messages are those of proto/allocator/contract/allocator.proto, serialised; the transport looks into them
 * no further than it must.
 *
 * One transport keeps one session: it connects, says Hello, asks for a snapshot, sends it, and then sends events in the
 * order in which they were pushed. When the stream breaks, or more is queued than allowed, the queue is dropped and a
 * snapshot is asked for; so memory is bounded, and nobody ever waits for the network.
 *
 * Threads. Each transport has one thread of its own, on which all callbacks are made, one at a time. `push`, `flush`,
 * `snapshot` and `statistics` may be called from any thread, also from callbacks. Their order is what counts: the owner
 * calls the first three under the lock (or from the actor) under which it changes what it knows, so that whatever
 * happened before a `snapshot` is in it, and whatever happens afterwards is pushed afterwards. No lock of the transport is
 * held during a callback, so the owner may take its own lock there.
 *
 * Time. No function blocks but `destroy`. `push` and `snapshot` copy; `flush` wakes the transport's thread.
 *
 * Failure. No function throws or aborts, and callbacks must not either. Pointers marked "may be NULL" may; no others.
 */

#ifndef LONGSHARE_TRANSPORT_H
#define LONGSHARE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LONGSHARE_TRANSPORT_SYMBOL "longshare_transport_interface"

/* Of this interface; raised whenever it changes. */
#define LONGSHARE_TRANSPORT_VERSION 1u

/* One end of one session. */
struct longshare_transport;

/* Where the service is, and how much patience and memory to spend. All durations are in milliseconds. */
struct longshare_transport_settings {
  const char* address;        /* unix:///PATH or HOST:PORT */
  const char* authority;      /* PEM file that has signed the service's certificate; NULL: no TLS */
  const char* certificate;    /* PEM file shown to the service, for mTLS; may be NULL */
  const char* key;            /* PEM file, goes with the certificate; may be NULL */
  int insecure;               /* not 0: without TLS also to an address that is not of this machine */
  uint64_t connect_timeout;   /* from the beginning of an attempt to the service's Welcome */
  uint64_t first_retry;       /* pause after a break; doubled after each failure, and jittered ... */
  uint64_t last_retry;        /* ... up to this */
  uint64_t keepalive_time;    /* of silence, after which the service is asked whether it is there */
  uint64_t keepalive_timeout; /* for it to answer, else the stream is broken */
  uint64_t queue_events;      /* most that may wait to be sent */
  uint64_t queue_bytes;       /* likewise */
};

/* What the transport tells its owner. All of it comes on the transport's thread; data is valid during the call only. */
struct longshare_transport_owner {
  void* context; /* handed to each callback; may be NULL */

  /* The service has answered on a new stream. `welcome`: a Welcome. */
  void (*connected)(void* context, const void* welcome, size_t size);

  /* Call `snapshot`, now or soon, from any thread. Events pushed until then are numbered and not sent, as the snapshot will
   * contain them. `reason` is for people. */
  void (*snapshot_wanted)(void* context, const char* reason);

  /* `decisions`: a Decisions, also when it is empty; each `snapshot` and each `flush` is followed by one, sooner or
   * later, that knows of it, unless a snapshot is wanted or the stream breaks before.
   *
   * Decisions from before the latest snapshot are withheld, as the service has forgotten them. One check is left to the
   * owner: if `applied_sequence` is less than what its latest `snapshot` returned, that snapshot was made while this callback
   * waited for the owner's lock, and the decisions must be ignored. */
  void (*decisions)(void* context, uint64_t applied_sequence, const void* decisions, size_t size);

  /* The stream that `connected` told of has ended. Replies that have not come will not come. Not called by `destroy`. */
  void (*disconnected)(void* context, const char* reason);

  /* For the log. The same complaint is made once, not with every attempt. */
  void (*log)(void* context, int severity, const char* text);
};

#define LONGSHARE_TRANSPORT_INFO 0
#define LONGSHARE_TRANSPORT_WARNING 1

struct longshare_transport_statistics {
  uint64_t connected;      /* 1: the service has answered on the present stream */
  uint64_t synchronised;   /* 1: and it has answered the latest snapshot, and does not make this master wait for another */
  uint64_t sessions;       /* streams on which it has answered */
  uint64_t resyncs;        /* snapshots sent after the first of each stream */
  uint64_t overflows;      /* times that the queue was dropped because it was full */
  uint64_t queued_events;  /* pushed and not handed to gRPC yet */
  uint64_t queued_bytes;
  uint64_t messages_sent;  /* Snapshot and Events */
  uint64_t unanswered;     /* of these, on the present stream */
  uint64_t round_trip_ns;  /* of the message answered last, from handing it to gRPC; 0: none was */
};

/* What LONGSHARE_TRANSPORT_SYMBOL returns; valid for ever. */
struct longshare_transport_api {
  /* LONGSHARE_TRANSPORT_VERSION of the library. If it is not that of the header, use nothing else of this. */
  uint32_t version;

  /* Fills in everything but the address. Never fails. */
  void (*defaults)(struct longshare_transport_settings* settings);

  /* Checks the settings and makes a transport, which does nothing until `start`.
   *
   * Returns NULL if the settings cannot be used, and writes what is wrong and what to do about it into `error`, cut to
   * `error_size` bytes with the final zero; each problem begins with the name of its setting and a colon. That the
   * service is absent is no error. The settings are copied. */
  struct longshare_transport* (*create)(const struct longshare_transport_settings* settings, char* error, size_t error_size);

  /* Begins to connect, and never gives up. To be called once; `owner` and `hello` (a Hello) are copied. Callbacks may
   * come before it returns. Returns 0, or -1 if it was started already or the machine gives no thread. */
  int (*start)(struct longshare_transport* transport, const struct longshare_transport_owner* owner, const void* hello,
               size_t size);

  /* Numbers an event and queues it. It is sent after the next `flush`, in one message with all that was pushed
   * before that `flush` and is not under way yet: an operator's RESERVE, say, must not be torn apart.
   *
   * `event`: an Event without `sequence`, which is filled in. Returns the sequence number, also when there is no stream and
   * the event is dropped; numbers begin with 1 and grow by 1 with each event and each snapshot. When the queue is
   * full, all of it is dropped and a snapshot will be wanted; the same if memory is exhausted. */
  uint64_t (*push)(struct longshare_transport* transport, const void* event, size_t size);

  /* Lets go what has been pushed so far. */
  void (*flush)(struct longshare_transport* transport);

  /* Sends a snapshot in place of all that is queued: when one is wanted, or of the owner's own accord, when it finds that it
   * and the service no longer agree. Replies to events pushed before it will not come.
   *
   * `snapshot`: a Snapshot without `sequence`, which is filled in. Returns its sequence number; 0: it was not taken,
   * because there is no stream (one will be wanted when there is) or memory is exhausted (it is wanted again). */
  uint64_t (*snapshot)(struct longshare_transport* transport, const void* snapshot, size_t size);

  void (*statistics)(const struct longshare_transport* transport, struct longshare_transport_statistics* statistics);

  /* Ends the session, waits for the transport's thread and frees the transport. A callback that has begun is waited for,
   * so hold no lock that callbacks take; and never call it from a callback. No callback is made after it returns. */
  void (*destroy)(struct longshare_transport* transport);
};

const struct longshare_transport_api* longshare_transport_interface(void);

#ifdef __cplusplus
}
#endif

#endif
