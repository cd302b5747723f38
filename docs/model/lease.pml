/* One lease, its queue and its holders' sessions, as PostgreSQL's statements (sql/postgresql.sql in the folders
 * of src/lock and src/upkeep) and the threads of src/lock do it. x.sql below means
 * the statement x there. README.md beside this file says how to read it, what is left out, and what each
 * run showed.
 *
 * A statement at READ COMMITTED is three steps, between which anything else may happen:
 *   1. a snapshot: what the statement reads, into variables of its process (read_rows);
 *   2. it waits for the row's lock, re-reads that row and nothing else, and locks a ticket of the
 *      snapshot that still exists;
 *   3. the commit: all writes become visible, the locks are released.
 *
 * Sizes, all with -D: CLIENTS, ROUNDS (locks each takes), LAPSES (sessions that expire while their
 * client lives), DEATHS (clients that are killed), CANCELS (waiters that cancel), BEATS (heartbeats).
 * Initial states. HELD: client 1 has the lease, the others enqueue at once, as clients do that have seen
 * other waiters. CHAIN: three clients in the middle of a series of hand-overs that need not wait for
 * the disk; QUIET: the client that has passed the lease on does not ask again.
 * Parts: REPLIES (of releases are lost), CRASH (the server loses what was not flushed), REAPER, FENCE,
 * RETAKE, PROMISE.
 * Faults of the protocol, each known to be wrong: WRONG_…; README.md lists them.
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LAPSES
#define LAPSES 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef BEATS
#define BEATS 0
#endif

/* --- the tables --------------------------------------------------------------------------------- */

/* rowlock_lock: one name. In a session, a ticket and a grant id 0 means NULL. */
bit present;    /* the row exists */
byte token;
byte holder;    /* the session, numbered as its client */
byte grant;     /* its grant id: 8 times the client's number + the number of the attempt */
byte promised;  /* successor: the grant id for which the next token is reserved */

/* rowlock_token_floor */
byte floor;
byte settled;

/* rowlock_session: one for each client. */
bit there[CLIENTS + 1];
bit ended[CLIENTS + 1];
#define FAR 2   /* expires_at: the client's trust window is open until this is NEAR */
#define NEAR 1
#define PAST 0
byte expires[CLIENTS + 1];

/* rowlock_waiter: a client has at most one queue entry. */
byte ticket[CLIENTS + 1];
byte place[CLIENTS + 1];  /* the entry's grant id */
byte next_ticket = 1;

#define LIVE(s) (there[s] && !ended[s] && expires[s] != PAST)
#define MINE(s, g) (present && holder == (s) && grant == (g))
#ifdef WRONG_CLOCK  /* the lease of an expired session is taken without ending the session first */
#define FREE (holder == 0 || !there[holder] || ended[holder] || expires[holder] == PAST)
#else
#define FREE (holder == 0 || !there[holder] || ended[holder])
#endif

/* --- locks, notifications, the disk ------------------------------------------------------------- */

bit lease_locked;
bit ticket_locked[CLIENTS + 1];
bit beating[CLIENTS + 1];   /* a heartbeat has locked the session's row */

byte notified[CLIENTS + 1]; /* of a grant: its id and token */
byte notified_token[CLIENTS + 1];

byte epoch;                 /* crashes so far: a statement sent before the last one is lost */

#ifdef CRASH
bit d_present;
byte d_token, d_holder, d_grant, d_promised, d_floor, d_settled;
bit d_there[CLIENTS + 1], d_ended[CLIENTS + 1];
byte d_ticket[CLIENTS + 1], d_place[CLIENTS + 1];
byte d_i;
/* A commit that waits for the disk; it makes all earlier commits durable, too. */
#define FLUSH                                                                                       \
    d_present = present; d_token = token; d_holder = holder; d_grant = grant;                       \
    d_promised = promised; d_floor = floor; d_settled = settled; d_i = 1;                           \
    do                                                                                              \
    :: d_i <= CLIENTS -> d_there[d_i] = there[d_i]; d_ended[d_i] = ended[d_i];                      \
                         d_ticket[d_i] = ticket[d_i]; d_place[d_i] = place[d_i]; d_i++              \
    :: else -> break                                                                             \
    od; d_i = 0
#else
#define FLUSH skip
#endif
#ifdef WRONG_8  /* grants, too, are committed asynchronously */
#define FLUSH_GRANT skip
#else
#define FLUSH_GRANT FLUSH
#endif

/* --- the clients -------------------------------------------------------------------------------- */

bit dead[CLIENTS + 1];      /* killed */
bit trust[CLIENTS + 1];     /* the trust window is open; once closed it stays closed */
bit believes[CLIENTS + 1];  /* the client believes that it holds */
byte knows[CLIENTS + 1];    /* the grant id that it has requested and not yet released */
bit due[CLIENTS + 1];       /* its waiter loop must check the queue */
bit at_work[CLIENTS + 1];   /* and is doing so */
bit waiting[CLIENTS + 1];   /* queued, and neither notified nor lost */
bit running[CLIENTS + 1];   /* an acquire is in flight, */
bit older[CLIENTS + 1];     /* and was sent before the floor was raised */

byte lapses = LAPSES, deaths = DEATHS, cancels = CANCELS, beats = BEATS;

/* --- what must hold ----------------------------------------------------------------------------- */

byte believers;             /* exclusion: never above 1 */
bit overlap;
byte written;               /* exclusion of fenced writes: their tokens never decrease */
bit stale_write;
byte top, top_grant;        /* each grant's token is above all earlier ones. A grant that a crash has */
bit token_fell;             /* undone may be made again, with the same id and the same token. */
bit robbed[CLIENTS + 1];    /* a dead session stays dead: a session whose lease was taken as a dead one's */
bit revived;                /* is never alive again */
/* No lost wake-up: no end state in which a waiter is queued. The wait in the queue is no end label,
 * and no process loops forever: every process that can take a step takes it. */

inline believe(who) {
    d_step {
        believes[who] = 1;
        believers++;
        overlap = believers > 1;
        assert(!overlap)
    }
}

inline doubt(who) {
    d_step {
        if
        :: believes[who] -> believes[who] = 0; believers--
        :: else
        fi
    }
}

/* --- pieces of statements ----------------------------------------------------------------------- */

#ifdef CRASH
#define INTACT (e == epoch)     /* the server has not crashed since the statement was sent */
#define EPOCH epoch
#else
#define INTACT true
#define EPOCH 0
#endif

/* Variables of a process that sends statements. seen[i] is the ticket of a live waiter i. */
#define STATEMENT                                                                                   \
    byte e, seen_token, seen_floor, seen_heir, pick, i, new;                                        \
    bit seen_free, seen_there, seen_mine, seen_waited, broken;                                      \
    byte seen[CLIENTS + 1]

/* The snapshot. */
inline read_rows() {
    e = EPOCH;
    seen_there = present; seen_free = !present || FREE; seen_token = token; seen_floor = floor;
    seen_heir = 0; seen_waited = 0;
    i = 1;
    do
    :: i <= CLIENTS ->
        seen[i] = ((ticket[i] != 0 && LIVE(i)) -> ticket[i] : 0);
        seen_waited = seen_waited || seen[i] != 0;
        seen_heir = ((promised != 0 && seen[i] != 0 && place[i] == promised) -> i : seen_heir);
        i++
    :: else -> break
    od;
    i = 0
}

/* A statement has ended: its reply has arrived or will not come. */
inline forget_rows() {
    broken = !INTACT;
    seen_there = 0; seen_free = 0; seen_mine = 0; seen_token = 0; seen_floor = 0; seen_heir = 0;
    seen_waited = 0; pick = 0; new = 0; e = 0;
    i = 1;
    do
    :: i <= CLIENTS -> seen[i] = 0; i++
    :: else -> break
    od;
    i = 0
}

#define LOCKABLE (!lease_locked || !INTACT)

/* The first ticket of the snapshot that still exists. */
#ifdef WRONG_3B  /* the delete does not check that the ticket still exists */
#define STANDS(s) (seen[s] != 0 && expires[s] != PAST)
#else
#define STANDS(s) (seen[s] != 0 && ticket[s] == seen[s] && expires[s] != PAST)
#endif
inline lock_ticket() {
    pick = 0;
    i = 1;
    do
    :: i <= CLIENTS ->
        pick = ((STANDS(i) && (seen_heir == 0 || seen_heir == i) &&
                 (pick == 0 || seen[i] < seen[pick])) -> i : pick);
        i++
    :: else -> break
    od;
    i = 0;
#ifndef WRONG_3B
    ticket_locked[pick] = pick != 0
#endif
}

/* The lease becomes a grant to a session, with a new token. The caller commits it. */
inline write_grant(to_s, to_g, to_t, from_s) {
    robbed[holder] = robbed[holder] ||
                     (holder != 0 && holder != from_s && there[holder] && !ended[holder]);
    token_fell = !((to_t) > top || ((to_t) == top && (to_g) == top_grant));
    assert(!token_fell);
    top_grant = ((to_t) >= top -> (to_g) : top_grant);
    top = ((to_t) > top -> (to_t) : top);
    present = 1; token = to_t; holder = to_s; grant = to_g;
    notified[to_s] = to_g; notified_token[to_s] = to_t
}

/* What a grant with the id g skips: a token that is reserved for another. */
#define LEFT_OUT(g) ((promised != 0 && promised != (g)) -> 1 : 0)
#define ABOVE(a, b) (((a) > (b)) -> (a) : (b))

/* Commits a grant to `pick`, and deletes its ticket. */
inline give_to_pick(giver) {
    new = ABOVE(token, seen_floor) + 1 + LEFT_OUT(place[pick]);
    i = place[pick];
#ifdef WRONG_3B
    i = (i == 0 -> 8 * pick : i);   /* cancelled meanwhile: an id that no client knows any more */
#endif
    write_grant(pick, i, new, giver);
    i = 0; new = 0;
    promised = 0; ticket[pick] = 0; place[pick] = 0; ticket_locked[pick] = 0; lease_locked = 0;
    FLUSH_GRANT
}

/* --- statements --------------------------------------------------------------------------------- */

/* grant_next.sql, and the loop around it in src/lock/protocol/queue/queue_postgresql.cpp. */
inline grant_next() {
    do
    :: atomic {
        d_step { read_rows() }
        if
        :: !seen_free || !seen_waited -> d_step { forget_rows() }; break
#ifdef WRONG_15     /* a row that the reaper has deleted is not restored */
        :: seen_free && seen_waited && !seen_there -> d_step { forget_rows() }; break
#else
        :: seen_free && seen_waited && !seen_there ->   /* restore_lease.sql */
            d_step {
                present = 1; token = floor; holder = 0; grant = 0; promised = 0;
                FLUSH;
                forget_rows()
            }
#endif
        :: else
        fi;
#ifdef WRONG_3A     /* the ticket is deleted before the lease is known to be free */
        d_step { lock_ticket() }
#endif
       }
       if
       :: seen_there ->
        atomic {
#ifdef WRONG_6      /* SKIP LOCKED */
            if
            :: lease_locked -> d_step { forget_rows() }; break
            :: else
            fi;
#endif
            LOCKABLE;
            if
            :: INTACT && present && token == seen_token ->
                d_step {
                    lease_locked = 1;
                    seen_mine = 1;
#ifndef WRONG_3A
                    lock_ticket()
#endif
                }
            :: else ->
#ifdef WRONG_3A
                d_step {
                    if
                    :: INTACT -> ticket[pick] = 0; place[pick] = 0; ticket_locked[pick] = 0
                    :: else
                    fi
                }
#endif
                d_step { forget_rows() }
#ifdef WRONG_5      /* assumes that the process that was faster has served the queue */
                break
#endif
            fi
        }
        if
        :: seen_mine && INTACT && pick != 0 ->
            atomic {
                d_step {
                    if
                    :: INTACT -> give_to_pick(0)
                    :: else
                    fi;
                    forget_rows()
                }
                if
                :: broken -> broken = 0
                :: else -> break
                fi
            }
        :: seen_mine && (!INTACT || pick == 0) ->
            d_step {
                if
                :: INTACT -> lease_locked = 0
                :: else
                fi;
                forget_rows()
            }
        :: else
        fi
       :: else
       fi
    od
}

#ifdef WRONG_NAME   /* the lease is freed by its name alone */
#define RELEASABLE(s, g) (present && holder != 0)
#else
#define RELEASABLE(s, g) MINE(s, g)
#endif
/* hand_over.sql: `did` is whether it freed this grant, `whom` the client that was served. */
inline hand_over(my, id, did, whom) {
    did = 0; whom = 0;
    atomic {
        d_step {
            read_rows();
            seen_mine = RELEASABLE(my, id)
        }
        if
        :: !seen_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: seen_mine ->
        atomic {
            LOCKABLE;
            if
            :: INTACT && RELEASABLE(my, id) -> d_step { lease_locked = 1; lock_ticket() }
            :: else -> d_step { forget_rows() }
            fi
        }
        if
        :: seen_mine ->
            d_step {
                if
                :: INTACT && pick != 0 -> did = 1; whom = pick; give_to_pick(my)
                :: INTACT && pick == 0 ->   /* asynchronously: no FLUSH */
                    did = 1; holder = 0; grant = 0; lease_locked = 0
                :: else
                fi;
                forget_rows()
            }
        :: else
        fi
    :: else
    fi
}

/* acquire.sql. `gets` is the token, 0 for none; `held`: the lease is held, or others wait for it. */
inline acquire(my, id, gets, held) {
    gets = 0; held = 0;
    atomic {
        d_step {
            read_rows();
            seen_mine = LIVE(my);
            new = ABOVE(seen_token, seen_floor) + 1 + LEFT_OUT(0);
#ifdef WRONG_1
            i = 1;
            do
            :: i <= CLIENTS -> alive[i] = there[i] && !ended[i]; i++
            :: else -> break
            od;
            i = 0
#endif
        }
        if
        :: !seen_free || seen_waited || !seen_mine ->
            d_step { held = seen_mine; forget_rows() }
        :: else -> running[my] = 1
        fi
    }
    if
    :: seen_mine ->
        /* No other process can observe what is between lock and commit: one step. */
        atomic {
            LOCKABLE;
            d_step {
                if
#ifdef WRONG_1  /* after the wait for the lock the row is re-read, the sessions are not */
                :: INTACT && (!present || holder == 0 || !alive[holder]) ->
                    new = (new > token -> new : token + 1);
#else
                :: INTACT && (!present || (seen_there && token == seen_token)) ->
#endif
                    gets = new;
                    write_grant(my, id, new, 0);
                    promised = 0;
                    FLUSH_GRANT
                :: else
                fi;
                running[my] = 0; older[my] = 0;
                forget_rows()
            }
        }
    :: else
    fi
}

#ifdef RETAKE
/* reacquire.sql: re-acquired by the token it was released with. */
inline retake(my, id, with, gets) {
    gets = 0;
    atomic {
        d_step {
            read_rows();
            seen_mine = LIVE(my) && present && holder == 0 && promised == 0 && floor <= with;
#ifndef WRONG_RETAKE    /* checks that it is free, not that no other client has held it since */
            seen_mine = seen_mine && token == with;
#endif
            i = 1;
            do
            :: i <= CLIENTS -> seen_mine = seen_mine && ticket[i] == 0; i++
            :: else -> break
            od;
            i = 0
        }
        if
        :: !seen_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: seen_mine ->
        atomic {
            LOCKABLE;
            d_step {
                if
#ifdef WRONG_RETAKE
                :: INTACT && present && holder == 0 ->
#else
                :: INTACT && present && holder == 0 && promised == 0 && token == with ->
#endif
                    gets = with + 1;
                    write_grant(my, id, gets, 0);
                    FLUSH_GRANT
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}
#endif

#ifdef PROMISE
/* settle.sql: the next waiter and the one after it; what the row promises is on disk afterwards. */
inline settle(my, id) {
    d_step {
        next = 0; after = 0; kept = 0;
        read_rows();
        if
        :: MINE(my, id) ->
            next = seen_heir;
            kept = seen_heir != 0;
            i = 1;
            do
            :: i <= CLIENTS ->
                next = ((!kept && seen[i] != 0 && (next == 0 || seen[i] < seen[next])) -> i : next);
                i++
            :: else -> break
            od;
            i = 1;
            do
            :: i <= CLIENTS ->
                after = ((seen[i] != 0 && i != next && (after == 0 || seen[i] < seen[after])) -> i :
                                                                                           after);
                i++
            :: else -> break
            od;
            i = 0;
            next_ticket_seen = (next != 0 -> ticket[next] : 0);
            after = (after != 0 -> place[after] : 0);
#ifndef WRONG_UNSETTLED /* what the row promises need not be on disk */
            FLUSH
#endif
        :: else
        fi;
        forget_rows();
        broken = 0
    }
}

/* pass_on.sql: to the waiter that settle read, with a promise to the one behind it. */
#define PASSABLE(s, g) (MINE(s, g) && ticket[next] == next_ticket_seen)
inline pass_on(my, id, did, whom) {
    did = 0; whom = 0;
    atomic {
        d_step {
            read_rows();
            seen_mine = PASSABLE(my, id)
        }
        if
        :: !seen_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: seen_mine ->
        atomic {
            LOCKABLE;
            if
            :: INTACT && PASSABLE(my, id) ->
                d_step { lease_locked = 1; ticket_locked[next] = 1 }
            :: else -> d_step { forget_rows() } /* the waiter has left: all is rolled back */
            fi
        }
        if
        :: seen_mine ->
            d_step {
                if
                :: INTACT ->
                    i = place[next]; did = 1; whom = next;
                    new = token + 1 + LEFT_OUT(i);
                    write_grant(next, i, new, my);
                    i = 0;
                    ticket[next] = 0; place[next] = 0; ticket_locked[next] = 0; lease_locked = 0;
                    promised = after;
#ifdef WRONG_PROMISE    /* no hand-over waits for the disk, whichever waiter is served */
                    promised = 0; kept = 1;
#endif
                    if
                    :: kept     /* promised and settled: asynchronously */
                    :: else -> FLUSH
                    fi
                :: else
                fi;
                forget_rows()
            }
        :: else
        fi
    :: else
    fi
}
#endif

#ifdef WRONG_PROMISE
#define PROMISED_TO(g) 0
#else
#define PROMISED_TO(g) g
#endif
#define END_SESSION(s) ended[s] = 1; FLUSH

/* --- processes ---------------------------------------------------------------------------------- */

/* A client: the thread that locks, and what its waiter loop does while that thread waits. */
proctype client(byte s) {
    STATEMENT;
    byte g, t, got, whom, rounds, attempt, connected;
    bit repeated, given_up;
#ifdef WRONG_1
    bit alive[CLIENTS + 1];
#endif
#ifdef RETAKE
    byte freed_with;
#endif
#ifdef PROMISE
    byte next, next_ticket_seen, after;
    bit kept;
#endif

#if defined(CHAIN)
#ifdef QUIET
    d_step { g = 8 * s + 1; attempt = 1; rounds = ROUNDS }
#else
    d_step { g = 8 * s + 1; attempt = 1; rounds = (s == 3 -> 0 : ROUNDS) }
#endif
    if
    :: s == 1 -> t = 2; goto holding
    :: s == 2 -> goto in_line
    :: else
    fi;
#elif defined(HELD)
    d_step { g = 8 * s + 1; attempt = 1; rounds = 1 }
    if
    :: s == 1 -> t = 1; goto holding
    :: else -> goto enqueue
    fi;
#else
    d_step { there[s] = 1; expires[s] = FAR; trust[s] = 1; connected = EPOCH; FLUSH }
#endif

next_round:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && rounds == ROUNDS -> goto finished
        :: else
        fi;
        d_step { rounds++; repeated = 0 }
    }
attempt_anew:
    skip;
    d_step { attempt++; g = 8 * s + attempt; knows[s] = g; connected = EPOCH }
again:
#ifdef RETAKE
    if
    :: freed_with != 0 ->
        retake(s, g, freed_with, got);
        freed_with = 0;
        if
        :: got != 0 -> goto granted
        :: else
        fi
    :: else
    fi;
#endif
    acquire(s, g, got, whom);
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && broken ->        /* find_grant.sql, confirm_grant.sql */
            d_step {
                broken = 0; whom = 0;
                got = (MINE(s, g) -> token : 0);
                FLUSH
            }
            if
            :: got != 0 -> goto granted
            :: else -> goto attempt_anew
            fi
        :: trust[s] && !broken && got != 0 -> goto granted
        :: trust[s] && !broken && got == 0 && whom == 0 -> goto again
        :: else -> whom = 0
        fi
    }

/* A queue entry: enqueue.sql. The ticket is drawn before it becomes visible. */
enqueue:
    skip;
    d_step { e = EPOCH; got = next_ticket; next_ticket++ }
    d_step {
        if
        :: INTACT -> ticket[s] = got; place[s] = g
        :: else -> broken = 1
        fi;
        got = 0; e = 0
    }
    if
    :: broken -> broken = 0; goto attempt_anew
    :: else
    fi;

/* Checks its queue entry: when the enqueue has committed, and when it has reconnected. */
look:
    atomic {
        d_step {
            waiting[s] = 1;
            connected = EPOCH;
            if
            :: notified[s] == g
            :: notified[s] != g && !LIVE(s) -> got = 1
            :: notified[s] != g && LIVE(s) && ticket[s] == 0 && MINE(s, g) ->
                notified[s] = g; notified_token[s] = token
            :: notified[s] != g && LIVE(s) && ticket[s] == 0 && !MINE(s, g) -> got = 2
            :: notified[s] != g && LIVE(s) && ticket[s] != 0 && FREE -> due[s] = 1
            :: else
            fi
        }
        if
        :: got == 1 -> goto lost
        :: got == 2 -> got = 0; waiting[s] = 0; goto attempt_anew   /* a crash has lost it */
        :: else
        fi
    }

in_line:
    if
    :: atomic { notified[s] == g -> waiting[s] = 0 }; goto granted
    :: !trust[s] -> goto lost
#ifdef CRASH
    :: epoch != connected -> goto look
#endif
    /* cancel.sql waits for a grant that has the ticket. */
    :: atomic { cancels > 0 && notified[s] != g && !ticket_locked[s] ->
                d_step {
                    cancels--;
                    waiting[s] = 0;
                    if
                    :: ticket[s] != 0 && place[s] == g ->
                        ticket[s] = 0; place[s] = 0; knows[s] = 0; due[s] = 1;
                        FLUSH
                    :: else -> got = 1
                    fi
                }
                if
                :: got == 1 -> got = 0; goto release    /* it was served after all; the lease is released */
                :: else -> goto next_round
                fi }
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
#ifdef WRONG_CLOCK
    :: atomic { FREE && holder != 0 && there[holder] && !ended[holder] && !due[s] && !at_work[s] ->
                due[s] = 1 }; goto in_line
#else
    /* end_expired_session.sql waits for a heartbeat that has the row. */
    :: d_step { holder != 0 && there[holder] && !ended[holder] && expires[holder] == PAST &&
                !beating[holder] -> END_SESSION(holder); due[s] = 1 }; goto in_line
#endif
    fi;

granted:
    atomic {
        if
        :: trust[s] -> believe(s)
        :: else -> goto lost
        fi;
        d_step { t = notified_token[s]; notified[s] = 0; notified_token[s] = 0; got = 0; whom = 0 }
    }
holding:
    if
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
    :: true
    fi;
#ifdef FENCE
    /* fence.sql, a write, COMMIT. The client may have been suspended before each of them. */
    d_step { e = EPOCH; seen_mine = MINE(s, g) && token == t && !ended[s] }
    if
    :: seen_mine ->
#ifndef WRONG_FENCE     /* the write is not fenced */
        atomic {
            LOCKABLE;
            if
            :: INTACT && MINE(s, g) && token == t -> lease_locked = 1
            :: else -> seen_mine = 0
            fi
        }
        if
        :: seen_mine ->
#endif
            if
            :: d_step {
                if
                :: INTACT ->
                    stale_write = t < written;
                    assert(!stale_write);
                    written = t;
#ifndef WRONG_FENCE
                    lease_locked = 0
#endif
                :: else
                fi;
                seen_mine = 0 }
#ifndef WRONG_FENCE
            /* killed within the transaction: the server rolls it back, and serves no queue */
            :: atomic { INTACT && deaths > 0 && !due[s] && !at_work[s] ->
                        d_step { deaths--; lease_locked = 0; seen_mine = 0; e = 0 }
                        goto killed }
#endif
            fi
#ifndef WRONG_FENCE
        :: else
        fi
#endif
    :: else
    fi;
    e = 0;
#endif
#ifdef PROMISE
    settle(s, g);
    if
    :: next != 0 ->
        doubt(s);
        pass_on(s, g, got, whom);
        d_step { next = 0; next_ticket_seen = 0; after = 0; kept = 0 }
        if
        :: got -> goto released
        :: else
        fi
    :: else
    fi;
#endif

release:
    skip;
    doubt(s);
    hand_over(s, g, got, whom);
    if
    :: broken -> broken = 0; goto release
    :: else
    fi;
released:
    atomic {
        if
        :: got && whom == 0 ->  /* no waiter was served: check again after the commit */
#ifndef WRONG_4
            due[s] = 1;
#endif
#ifdef RETAKE
            freed_with = t;
#endif
            skip
        :: else
        fi;
#ifdef CRASH
        if
        :: !got && !given_up -> goto give_up
        :: else
        fi;
#endif
        d_step { got = 0; whom = 0 }
#ifdef REPLIES
        if
        :: !repeated -> repeated = 1; goto release
        :: true
        fi;
#endif
        d_step { knows[s] = 0; t = 0; given_up = 0 }
        goto next_round
    }

#ifdef CRASH
/* No longer this grant's. If a crash lost the hand-over, the queue entry may be back, or about to be
 * served: the client deletes it first and then releases the lease (src/lock/session/upkeep.cpp,
 * give_up and resolve_unknown). */
give_up:
    atomic {
        !ticket_locked[s];
        given_up = 1;
        if
        :: place[s] == g ->
            d_step {
                ticket[s] = 0; place[s] = 0; due[s] = 1; knows[s] = 0; t = 0; given_up = 0;
                FLUSH
            }
            goto next_round
        :: else -> goto release
        fi
    }
#endif

/* The trust window has passed: the client ends its session, and checks the queue afterwards. */
lost:
    atomic {
        !beating[s];
        d_step {
            waiting[s] = 0; knows[s] = 0; notified[s] = 0; notified_token[s] = 0;
            END_SESSION(s);
            due[s] = 1
        }
        goto finished
    }

killed:
    doubt(s);
    d_step {
        waiting[s] = 0; knows[s] = 0; notified[s] = 0; notified_token[s] = 0; trust[s] = 0; dead[s] = 1
    }

finished:
    skip;
    d_step { g = 0; t = 0; got = 0; whom = 0; attempt = 0; rounds = 0; connected = 0; repeated = 0;
             broken = 0 }
}

#define WAITS(s) (ticket[s] != 0 && LIVE(s))
#if CLIENTS == 2
#define WAITED (WAITS(1) || WAITS(2))
#elif CLIENTS == 3
#define WAITED (WAITS(1) || WAITS(2) || WAITS(3))
#else
#define WAITED (WAITS(1) || WAITS(2) || WAITS(3) || WAITS(4))
#endif
#define SERVABLE ((!present || FREE) && WAITED)

/* The thread of the waiter loop, as far as it serves other waiters. */
proctype waiter_loop(byte s) {
    STATEMENT;
end:
    do
    :: atomic { due[s] && !dead[s] && !SERVABLE -> due[s] = 0 }     /* checks, without effect */
    :: d_step { due[s] && !dead[s] && SERVABLE -> due[s] = 0; at_work[s] = 1 }
        grant_next();
        at_work[s] = 0
    od
}

inline tick(who) {
    d_step {
        there[who] && !ended[who] && expires[who] == FAR && (dead[who] || lapses > 0) ->
        if
        :: !dead[who] -> lapses--
        :: else
        fi;
        expires[who] = NEAR; trust[who] = 0;
        if
        :: believes[who] -> believes[who] = 0; believers--
        :: else
        fi
    }
}

/* The database's clock, and with it the client's watchdog. */
proctype clock(byte s) {
end:
    do
    :: tick(s)
    :: d_step { there[s] && !ended[s] && expires[s] == NEAR -> expires[s] = PAST }
    od
}

#if BEATS > 0
/* heartbeat.sql. The clock is read after the row is locked. */
proctype heartbeat(byte s) {
    bit alive;
    byte e;
end:
    do
    :: d_step { beats > 0 && trust[s] && !dead[s] && !beating[s] ->
                beats--; beating[s] = 1; alive = LIVE(s); e = EPOCH }
        d_step {
            if
            :: INTACT && alive ->
                expires[s] = FAR;
                revived = ended[s] || robbed[s];
                assert(!revived);
                FLUSH
            :: else
            fi;
            if
            :: INTACT -> beating[s] = 0
            :: else
            fi
        }
        if
        :: !alive && INTACT ->
            d_step {
                trust[s] = 0;
                if
                :: believes[s] -> believes[s] = 0; believers--
                :: else
                fi
            }
        :: else
        fi;
        d_step { alive = 0; e = 0 }
    od
}
#endif

#ifdef CRASH
/* The server is killed once and restarts. All locks are released, statements in flight are lost. */
proctype crash() {
    byte i;
    d_step {
        present = d_present; token = d_token; holder = d_holder; grant = d_grant;
        promised = d_promised; floor = d_floor; settled = d_settled;
        lease_locked = 0;
        i = 1;
        do
        :: i <= CLIENTS ->
            there[i] = d_there[i]; ended[i] = d_ended[i]; ticket[i] = d_ticket[i];
            place[i] = d_place[i]; ticket_locked[i] = 0; beating[i] = 0; running[i] = 0; older[i] = 0;
            i++
        :: else -> break
        od;
        i = 0;
        epoch++
    }
}

/* A client's heartbeat thread after a reconnect:
 * src/lock/session/upkeep.cpp, compare_with_database. Queue entries first. */
proctype upkeep(byte s) {
    STATEMENT;
    byte held, row;
    bit freed, stray, doubtful;
    byte whom;
end:
    epoch > 0;
compare:
    skip;
    d_step {
        !ticket_locked[s];
        held = (believes[s] -> knows[s] : 0);
        if
        :: trust[s] && ticket[s] != 0 && place[s] != knows[s] ->
            ticket[s] = 0; place[s] = 0; due[s] = 1;
            FLUSH
        :: else
        fi
    }
    d_step { row = ((trust[s] && present && holder == s) -> grant : 0) }
    d_step {
        stray = trust[s] && row != 0 && row != knows[s];
        doubtful = trust[s] && row != 0 && row == knows[s] && row != held
    }
#ifndef WRONG_7     /* the rows are not compared, and the lost release is not repeated */
    if
    :: stray ->
        hand_over(s, row, freed, whom);
        if
        :: freed && whom == 0 -> due[s] = 1
        :: else
        fi
    :: else
    fi;
#endif
    d_step {
        if
        :: held != 0 && row != held && believes[s] && knows[s] == held ->
            believes[s] = 0; believers--
        :: else
        fi;
        held = 0; freed = 0; whom = 0
    }
#ifndef WRONG_COMPARE_ONCE  /* known, but not held: a release may have been in flight */
    if
    :: doubtful ->
        (knows[s] != row || believes[s] || !trust[s]);
        row = 0;
        goto compare
    :: else
    fi;
#endif
    d_step { row = 0; stray = 0; doubtful = 0 }
}
#endif

#ifdef REAPER
#ifdef WRONG_16_FLOOR   /* the floor is not raised before a row is deleted */
#define UNDER_FLOOR true
#else
#define UNDER_FLOOR (token + LEFT_OUT(0) <= settled)
#endif
/* src/upkeep/reaping.cpp */
proctype reaper() {
    STATEMENT;
    byte round, s;
    do
    :: round == 3 -> break
    :: else ->
        round++;
        d_step {    /* reap_sessions.sql */
            s = 1;
            do
            :: s <= CLIENTS ->
                if
                :: there[s] && !ended[s] && expires[s] == PAST && !beating[s] -> END_SESSION(s)
                :: else
                fi;
                s++
            :: else -> break
            od;
            s = 0
        }
        grant_next();
        skip;
        d_step {    /* reap_leases.sql, reap_waiters.sql */
            if
            :: !lease_locked && present && holder != 0 && FREE -> holder = 0; grant = 0
            :: else
            fi;
            s = 1;
            do
            :: s <= CLIENTS ->
                if
                :: ticket[s] != 0 && ended[s] && !ticket_locked[s] -> ticket[s] = 0; place[s] = 0
                :: else
                fi;
                s++
            :: else -> break
            od;
            s = 0
        }
        /* ended_sessions.sql, ended_holders.sql, and then delete_ended_sessions.sql */
        d_step {
            i = 1;
            do
            :: i <= CLIENTS ->
                seen[i] = there[i] && ended[i] && ticket[i] == 0 && holder != i;
                i++
            :: else -> break
            od;
            i = 0
        }
        d_step {
            i = 1;
            do
            :: i <= CLIENTS ->
                there[i] = there[i] && !seen[i];
                seen[i] = 0;
                i++
            :: else -> break
            od;
            i = 0
        }
        d_step {    /* settle_floor.sql: no statement from before the raise still runs */
            i = 1; pick = 0;
            do
            :: i <= CLIENTS -> pick = pick + older[i]; i++
            :: else -> break
            od;
            i = 0;
#ifdef WRONG_16_GRACE
            pick = 0;
#endif
            if
            :: pick == 0 -> settled = floor
            :: else -> pick = 0
            fi;
            FLUSH
        }
        d_step {    /* delete_leases.sql: tickets as the snapshot shows them, */
            i = 1; seen_waited = 0;
            do
            :: i <= CLIENTS -> seen_waited = seen_waited || ticket[i] != 0; i++
            :: else -> break
            od;
            i = 0
        }
        d_step {    /* the row as it is once it is locked */
            if
            :: !seen_waited && !lease_locked && present && holder == 0 && UNDER_FLOOR ->
                present = 0; token = 0; grant = 0; promised = 0
            :: else
            fi;
            seen_waited = 0
        }
        d_step {    /* idle_leases.sql, raise_floor.sql */
            if
            :: settled == floor && present && holder == 0 && !UNDER_FLOOR ->
                floor = token + LEFT_OUT(0);
                i = 1;
                do
                :: i <= CLIENTS -> older[i] = running[i]; i++
                :: else -> break
                od;
                i = 0;
                FLUSH
            :: else
            fi
        }
    od
}
#endif

init {
    byte s;
    atomic {
#ifdef CHAIN
        /* On disk: 3 holds, and the next token is reserved for 1. Then 3 passed on to 1, asynchronously, with
         * a promise to 2, and 1 was notified. Now 3 asks again. */
        d_step {
            s = 1;
            do
            :: s <= CLIENTS -> there[s] = 1; expires[s] = FAR; trust[s] = 1; s++
            :: else -> break
            od;
            present = 1; token = 1; holder = 3; grant = 25; promised = PROMISED_TO(9);
            ticket[1] = 1; place[1] = 9; knows[1] = 9;
            ticket[2] = 2; place[2] = 17; knows[2] = 17; waiting[2] = 1; next_ticket = 3
        }
        d_step { FLUSH }
        d_step {
            ticket[1] = 0; place[1] = 0;
            token = 2; holder = 1; grant = 9; promised = PROMISED_TO(17); top = 2; top_grant = 9;
            believes[1] = 1; believers = 1
        }
#elif defined(HELD)
        d_step {
            present = 1; token = 1; top = 1; holder = 1; grant = 9; top_grant = 9;
            believes[1] = 1; believers = 1;
            s = 1;
            do
            :: s <= CLIENTS -> there[s] = 1; expires[s] = FAR; trust[s] = 1; knows[s] = 8 * s + 1; s++
            :: else -> break
            od
        }
#endif
#ifndef CHAIN
        d_step { FLUSH }
#endif
        s = 1;
        do
        :: s <= CLIENTS ->
            run client(s);
            run waiter_loop(s);
            run clock(s);
#if BEATS > 0
            run heartbeat(s);
#endif
#ifdef CRASH
            run upkeep(s);
#endif
            s++
        :: else -> break
        od;
        s = 0;
#ifdef CRASH
        run crash();
#endif
#ifdef REAPER
        run reaper()
#endif
    }
}

#ifdef SERVED
/* Under weak fairness: every waiter is notified, or learns that its session is lost. */
ltl served { [] (waiting[CLIENTS] -> <> !waiting[CLIENTS]) }
#endif
