/* A lease that a client keeps after its release (docs/adr/0055), for one name: a retaining client with THREADS threads and
 * the thread that gives back, and OTHERS other clients that wait in the queue, one round each.
 *
 * In it: local grants, `retain` with its snapshot and its reply, recalls (which may be lost, LOSSY), the end of the time, a
 * fence whose transaction outlives its lease (FENCE), a session that lapses (LAPSES) or whose client dies (DEATHS).
 * A statement is a snapshot and then the write under the row's lock; steps that no other process can tell apart are one.
 * Left out: what lock.pml has; the policy (a release that may be kept is kept, or not); the poll of waiters.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef OTHERS
#define OTHERS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef LAPSES
#define LAPSES 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define BLOCK 2

/* --- the tables: the row of the lease, tickets by client (0: none), the retaining client's session */
#define KEEPER 1
byte row_session = 0, row_grant = 0, row_token = 0, row_retained = 0;
byte ticket[OTHERS + 2] = 0;
byte next_ticket = 1, next_grant = 1;
bool keeper_expired = false;
byte row_shared = 0;  /* transactions that have the row locked by a fence */

/* --- the retaining client */
mtype = {absent, reserving, in_use, idle};
mtype now = absent;
byte kept = 0;
bool recalled = false, in_time = true, trust = true, alive = true;
byte local_token = 0, local_end = 0;
bool fenced = false;       /* of the grant that a thread holds */
byte holder_grant = 0;     /* the database's grant under which a thread of the client holds */
byte holder_token = 0;     /* and its own token */
bool holds = false;        /* a thread believes that it holds, and has not begun its release */

/* --- properties */
byte inside = 0;     /* holders, and fenced transactions that may still commit */
byte last_token = 0; /* of all grants */
bool overlap = false, token_fell = false;

inline enter(token) {
    inside++;
    if
    :: inside > 1 -> overlap = true
    :: else
    fi;
    assert(!overlap);
    if
    :: token <= last_token -> token_fell = true
    :: else -> last_token = token
    fi;
    assert(!token_fell)
}

/* What a fault leaves out. */
#ifdef WRONG_TRUST
#define TRUSTED true
#else
#define TRUSTED trust
#endif
#ifdef WRONG_FENCED
#define UNFENCED true
#else
#define UNFENCED (!fenced)
#endif
#ifdef WRONG_WINDOW
#define TIME_PASSES break
#else
#define TIME_PASSES in_time = false
#endif

#if OTHERS > 1
#define MY_TURN (row_session == 0 && ticket[me] != 0 && (ticket[5 - me] == 0 || ticket[me] < ticket[5 - me]))
#else
#define MY_TURN (row_session == 0 && ticket[me] != 0)
#endif
#define WAITED (ticket[2] != 0 || ticket[OTHERS + 1] != 0)

/* Frees the row, to the first ticket. The row is locked while a fenced transaction is open. */
inline free_row(grant_id) {
    (row_shared == 0);
    if
    :: row_session == KEEPER && row_grant == grant_id ->
        row_retained = 0;
        if
        :: ticket[2] != 0 && (OTHERS == 1 || ticket[OTHERS + 1] == 0 || ticket[2] <= ticket[OTHERS + 1]) ->
            row_session = 2; row_token++; row_grant = next_grant; next_grant++; ticket[2] = 0
#if OTHERS > 1
        :: ticket[3] != 0 && (ticket[2] == 0 || ticket[3] < ticket[2]) ->
            row_session = 3; row_token++; row_grant = next_grant; next_grant++; ticket[3] = 0
#endif
        :: else -> row_session = 0; row_grant = 0
        fi
    :: else
    fi
}

proctype thread() {
    byte rounds = 0, mine = 0, token = 0;
    bool waited, ours, done;
    do
    :: rounds == ROUNDS || !alive || keeper_expired -> break
    :: else ->
        rounds++;
        ours = false;
        /* A local grant: under the name's mutex. The window of trust is looked at behind it. */
        atomic {
            if
            :: now == idle && !recalled && in_time && alive && TRUSTED -> now = in_use; ours = true; token = local_token; local_token++; mine = kept;
               fenced = false; holder_grant = mine; holder_token = token; holds = true; enter(token)
            :: else
            fi
        };
        /* Or the database's, if the lease is free. A thread that does not get it gives up. */
        if
        :: ours
        :: else ->
            atomic {
                if
                :: row_session == 0 && !WAITED && alive && trust && !keeper_expired ->
                    row_session = KEEPER; row_token++; row_grant = next_grant; next_grant++; row_retained = 0;
                    ours = true; token = row_token; mine = row_grant;
                    fenced = false; holder_grant = mine; holder_token = token; holds = true; enter(token)
                :: else
                fi
            }
        fi;
        if
        :: !ours -> goto next
        :: else
        fi;
        /* The holder works. It stops when it is no longer trusted (`lost`). */
        if
        :: !alive -> goto died
        :: else
        fi;
        atomic {
            holds = false; inside--;  /* the release begins */
            done = false;
            if
            :: now == in_use && kept == mine && !recalled && in_time && token < local_end && alive && trust && UNFENCED ->
                now = idle; local_token = token + 1; done = true
            :: else
            fi
        };
        if
        :: done -> goto next
        :: else
        fi;
        /* Worth keeping, or to be released: begin(). */
        atomic {
            if
            :: (now == absent || now == in_use && kept == mine) && !(now == in_use && recalled) && alive && UNFENCED ->
               if
               :: now == absent -> recalled = false
               :: else
               fi;
               now = reserving; kept = mine; done = true
            :: true ->
               if
               :: now == in_use && kept == mine -> now = absent; kept = 0
               :: else
               fi
            fi
        };
        if
        :: !done -> goto release
        :: else
        fi;
        waited = WAITED;  /* the statement's snapshot */
        atomic {
            done = false;
            (row_shared == 0);
            if
            :: row_session == KEEPER && row_grant == mine && !waited && !keeper_expired ->
                row_retained = mine; done = true;
#ifndef WRONG_BLOCK
                row_token = row_token + BLOCK
#endif
            :: else
            fi
        };
        /* The reply: kept(). */
        atomic {
            if
            :: done && alive && trust && !recalled -> now = idle; in_time = true; recalled = false;
#ifndef WRONG_BLOCK
               local_token = row_token - BLOCK + 1; local_end = row_token
#else
               local_token = token + 1; local_end = token + BLOCK
#endif
            :: else -> now = absent; kept = 0; done = false
            fi
        };
        if
        :: done -> goto next
        :: else
        fi;
release:
        atomic {
            if
            :: alive -> free_row(mine)
            :: else
            fi
        };
next:
        skip
    od;
    goto end;
died:
    atomic { holds = false; inside-- };
end:
    skip
}

/* Gives back an idle lease that was recalled, or whose time is up. */
active proctype giver() {
    byte mine;
end:
    do
    :: atomic { now == idle && (recalled || !in_time) && alive ->
            mine = kept; now = absent; kept = 0
       };
       atomic {
           if
           :: alive -> free_row(mine)
           :: else
           fi
       }
    od
}

/* The time since the latest `retain` passes. */
active proctype window() {
end:
    do
    :: atomic { in_time && now != absent && now != reserving -> TIME_PASSES }
    od
}

/* The trust window closes, and later, when the holder has stopped, the session is over; or the client dies. */
active proctype clock() {
    if
    :: LAPSES > 0 ->
        trust = false;
        (!holds);
        keeper_expired = true
    :: DEATHS > 0 ->
        atomic { alive = false; trust = false };
        (!holds && inside == row_shared + (row_session > KEEPER));
        keeper_expired = true
    :: true
    fi
}

proctype other(byte me) {
    byte seen_grant = 0;
    bool seen_retained = false;
    /* The attempt, which found the lease free, or held. */
    atomic {
        if
        :: row_session == 0 && !WAITED ->
            row_session = me; row_token++; row_grant = next_grant; next_grant++; row_retained = 0;
            goto granted
        :: else -> seen_grant = row_grant; seen_retained = (row_retained == row_grant && row_grant != 0)
        fi
    };
    atomic { ticket[me] = next_ticket; next_ticket++ };
    /* The recall, once the ticket is committed; to the client's thread that receives it. */
    if
    :: seen_retained ->
        if
#ifdef LOSSY
        :: true
#endif
        :: atomic {
               if
               :: kept == seen_grant && alive -> recalled = true
               :: else
               fi
           }
        fi
    :: else
    fi;
    /* After its enqueue a waiter takes a free lease, and later one whose session is over. */
    do
    :: atomic { row_session == me -> break }
    :: atomic { MY_TURN || (row_session == KEEPER && keeper_expired && row_shared == 0) ->
           row_session = me; row_token++; row_grant = next_grant; next_grant++; row_retained = 0; ticket[me] = 0;
           break }
    od;
granted:
    atomic { enter(row_token) };
    atomic {
        inside--;
        row_session = 0; row_grant = 0;
#if OTHERS > 1
        if
        :: ticket[5 - me] != 0 ->
            row_session = 5 - me; row_token++; row_grant = next_grant; next_grant++; ticket[5 - me] = 0
        :: else
        fi
#endif
    }
}

/* Another thread fences the lease that a thread of the retaining client holds: marks it, checks that it is held, sends the
 * fence, which finds the database's grant or not, and commits later, perhaps after the release. */
proctype fencer() {
#ifdef FENCE
    byte mine, token;
    bool ok = false;
end_of_holders:
    atomic { holds -> mine = holder_grant; token = holder_token };
#ifdef WRONG_ORDER
    /* checked, and marked too late */
    ok = true;
    atomic {
        if
        :: holds && holder_token == token -> fenced = true
        :: else
        fi
    };
#else
    /* Marks the grant object, whatever has become of it; a release looks at the mark. */
    atomic {
        if
        :: holds && holder_token == token -> fenced = true; ok = true
        :: else
        fi
    };
#endif
    if
    :: ok ->
        atomic {
            if
            :: row_session == KEEPER && row_grant == mine && !keeper_expired -> row_shared++
            :: else -> goto over
            fi
        };
        /* The transaction is open. Were another grant's holder inside meanwhile, both would write. */
        atomic {
            if
            :: inside > 0 && !(holds && holder_token == token) -> overlap = true
            :: else
            fi;
            assert(!overlap)
        };
        row_shared--
    :: else
    fi;
#endif
over:
    skip
}

init {
    byte i;
    atomic {
        for (i : 1 .. THREADS) { run thread() };
        for (i : 1 .. OTHERS) { run other(i + 1) };
        run fencer()
    }
}
