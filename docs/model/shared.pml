/* A shared_mutex, as PostgreSQL's statements do it (src/lock/protocol/semaphore/sql/postgresql.sql; take and so
 * on below are take_permits and so on there). README.md says how to read it and what each run showed.
 *
 * A statement is a snapshot, then waits for row locks, each of which re-reads its row and nothing else, then a
 * commit. The modes are weights: shared 1, upgradeable 4, exclusive all 7.
 *
 * Clients, all with -D: READERS, WRITERS, KEEPERS (upgradeable, then exclusive, then shared again), each of which
 * holds ROUNDS times. LAPSES: sessions that expire while their client lives. FENCE: a reader's transaction is fenced.
 * CANCELS: waiters that give up. LATE: a downgrade whose reply was lost.
 * Faults, each known to be wrong: WRONG_…; README.md lists them. */

#ifndef READERS
#define READERS 2
#endif
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef KEEPERS
#define KEEPERS 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LAPSES
#define LAPSES 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#define CLIENTS (READERS + WRITERS + KEEPERS)

#define ALL 7
#define SHARED 1
#define UPGRADEABLE 4

/* --- the tables --------------------------------------------------------------------------------- */

byte used;                      /* rowlock_semaphore */
byte hold[CLIENTS + 1];         /* rowlock_hold: a client's first grant, 0: there is none */
byte more[CLIENTS + 1];         /* and that of an upgrade */
byte ticket[CLIENTS + 1];       /* rowlock_permit_waiter: a client has at most one entry */
byte want[CLIENTS + 1];
bit ended[CLIENTS + 1];         /* rowlock_session */
byte next_ticket = 2;           /* 1 is that of an upgrade */

bit counter_locked;
bit hold_locked[CLIENTS + 1];   /* both grants of a client */
bit fenced[CLIENTS + 1];        /* a transaction of the caller's is open */

/* --- what must hold ----------------------------------------------------------------------------- */

byte readers, writers, keepers; /* that believe it, or whose fenced transaction is open */
bit reads[CLIENTS + 1], writes[CLIENTS + 1], keeps[CLIENTS + 1];
bit lapsed[CLIENTS + 1];        /* the client knows that its session is over */
bit overlap, miscounted;
byte lapses = LAPSES, cancels = CANCELS;

#define EXCLUDED (writers > 1 || keepers > 1 || (writers > 0 && readers > 0))

inline check_overlap() {
    overlap = EXCLUDED;
    assert(!overlap)
}

/* In every committed state the counter is the sum of the holds. */
inline check_sum() {
    n = 0; k = 1;
    do
    :: k <= CLIENTS -> n = n + hold[k] + more[k]; k++
    :: else -> break
    od;
    miscounted = used != n;
    assert(!miscounted);
    n = 0; k = 0
}

inline start_reading() { d_step { reads[me] = 1; readers++; check_overlap() } }
inline stop_reading() { d_step { readers = readers - reads[me]; reads[me] = 0 } }
inline start_writing() { d_step { writes[me] = 1; writers++; check_overlap() } }
inline stop_writing() { d_step { writers = writers - writes[me]; writes[me] = 0 } }
inline start_keeping() { d_step { keeps[me] = 1; keepers++; check_overlap() } }
inline stop_keeping() { d_step { keepers = keepers - keeps[me]; keeps[me] = 0 } }

/* --- statements --------------------------------------------------------------------------------- */

#define STATEMENT                                                                                   \
    byte n, k, free, pick, gone, seen_sum;                                                          \
    bit waited, got;                                                                                \
    byte seen[CLIENTS + 1]

/* The entries of live sessions, but our own. */
inline read_queue() {
    waited = 0; seen_sum = 0; k = 1;
    do
    :: k <= CLIENTS ->
        seen[k] = (ended[k] -> 0 : ticket[k]);
        waited = waited || (seen[k] != 0 && k != me);
        seen_sum = seen_sum + hold[k] + more[k];
        k++
    :: else -> break
    od;
    k = 0
}

inline forget_queue() {
    k = 1;
    do
    :: k <= CLIENTS -> seen[k] = 0; k++
    :: else -> break
    od;
    k = 0; waited = 0; seen_sum = 0; pick = 0; free = 0
}

/* take: w permits as `row` (hold or more); an upgrade passes the queue. */
inline take(w, row, passes) {
    got = 0;
    atomic {
        d_step { read_queue() }
        got = !ended[me] && (passes || !waited)
    }
    if
    :: got ->
#ifdef WRONG_COUNT  /* counts the holds that it sees, instead of locking the counter */
        atomic {
            got = seen_sum + w <= ALL;
            d_step { forget_queue() }
        }
#else
        atomic {
            d_step { forget_queue() }
            !counter_locked;
            got = used + w <= ALL;
            counter_locked = got
        }
#endif
        if
        :: got -> d_step { used = used + w; row = row + w; counter_locked = 0; check_sum() }
        :: else
        fi
    :: else -> d_step { forget_queue() }
    fi
}

/* grant: the longest prefix of the queue that fits. */
inline grant() {
    do
    :: atomic {
        d_step { read_queue(); waited = waited || seen[me] != 0 }
        if
        :: waited
        :: else -> d_step { forget_queue() }; break
        fi
       }
       atomic { !counter_locked; counter_locked = 1 }
       d_step {
        free = ALL - used; got = 0;
        do
        :: true ->
            pick = 0; k = 1;
            do
            :: k <= CLIENTS ->
                pick = ((seen[k] != 0 && ticket[k] == seen[k] && (pick == 0 || seen[k] < seen[pick])) -> k : pick);
                k++
            :: else -> break
            od;
            k = 0;
            if
            :: pick != 0 && want[pick] <= free ->
                free = free - want[pick]; used = used + want[pick]; got = 1;
                if
                :: hold[pick] != 0 -> more[pick] = want[pick]
                :: else -> hold[pick] = want[pick]
                fi;
                ticket[pick] = 0; seen[pick] = 0; want[pick] = 0
            :: else -> break
            fi
        od;
        counter_locked = 0;
        check_sum();
        forget_queue()
       }
       if
       :: got -> got = 0
       :: else -> break
       fi
    od
}

/* give: the hold first, then the counter. */
inline give(row) {
#ifdef WRONG_STALE  /* lowers the counter by what was read before the row was locked */
    gone = row;
    atomic { !hold_locked[me] || row == 0; gone = (row == 0 -> 0 : gone); hold_locked[me] = gone != 0 }
#else
    atomic { !hold_locked[me] || row == 0; gone = row; hold_locked[me] = gone != 0 }
#endif
    if
    :: gone != 0 ->
        atomic { !counter_locked; counter_locked = 1 }
        d_step {
            used = used - gone; row = 0; gone = 0;
            hold_locked[me] = 0; counter_locked = 0;
            check_sum()
        }
#ifndef WRONG_SILENT    /* does not look at the queue afterwards */
        grant()
#endif
    :: else
    fi
}

/* shrink: of the first grant. Names the number before; a release of another thread of the client may be under way. */
inline shrink(from, to) {
    atomic { !hold_locked[me] || hold[me] == 0; got = hold[me] == from; hold_locked[me] = got }
    if
    :: got ->
        atomic { !counter_locked; counter_locked = 1 }
        d_step {
            used = used - (from - to); hold[me] = to;
            hold_locked[me] = 0; counter_locked = 0; got = 0;
            check_sum()
        }
        grant()
    :: else
    fi
}

/* The end of a session, and sweep: what another transaction has locked is left for later. */
inline sweep(who) {
    do
    :: atomic {
#ifdef WRONG_LIVE   /* gives back what a dead session has, though its fenced transaction is open */
        hold[who] == 0 || !hold_locked[who] || fenced[who];
#else
        hold[who] == 0 || !hold_locked[who];
#endif
        if
        :: hold[who] + more[who] == 0 -> break
        :: else -> hold_locked[who] = 1
        fi
       }
       atomic { !counter_locked; counter_locked = 1 }
       d_step {
        used = used - hold[who] - more[who]; hold[who] = 0; more[who] = 0;
        hold_locked[who] = fenced[who]; counter_locked = 0;
        check_sum()
       }
       grant()
    od
}

/* --- the clients -------------------------------------------------------------------------------- */

inline enqueue(w, number) {
    d_step {
        if
        :: !ended[me] ->
            want[me] = w;
            if
            :: number != 0 -> ticket[me] = number
            :: else -> ticket[me] = next_ticket; next_ticket++
            fi
        :: else
        fi
    }
    grant()
}

/* Waits for `row`; a client whose session is over, or that gives up, has no entry any more. */
inline wait_for(row) {
    if
    :: row != 0
    :: lapsed[me]
    :: atomic { cancels > 0 && row == 0 -> cancels--; ticket[me] = 0; want[me] = 0 }
       grant()
    fi
}

#define OVER lapsed[me]

proctype reader(byte me) {
    STATEMENT;
    byte rounds = ROUNDS;
    do
    :: rounds > 0 && !OVER ->
        rounds--;
        take(SHARED, hold[me], false);
        if
        :: hold[me] == 0 && !OVER -> enqueue(SHARED, 0); wait_for(hold[me])
        :: else
        fi;
        atomic {
            if
            :: hold[me] != 0 && !OVER -> start_reading()
            :: else
            fi
        }
#ifdef FENCE
        atomic {    /* the fence proves the hold, and keeps it until the commit */
            if
            :: reads[me] && hold[me] != 0 && !hold_locked[me] && !ended[me] ->
                fenced[me] = 1; hold_locked[me] = 1; readers++; check_overlap()
            :: else
            fi
        }
        d_step {
            if
            :: fenced[me] -> fenced[me] = 0; hold_locked[me] = 0; readers--
            :: else
            fi
        }
#endif
        stop_reading();
        if
        :: !OVER -> give(hold[me])
        :: else
        fi
    :: else -> break
    od
}

proctype writer(byte me) {
    STATEMENT;
    byte rounds = ROUNDS;
    do
    :: rounds > 0 && !OVER ->
        rounds--;
        take(ALL, hold[me], false);
        if
        :: hold[me] == 0 && !OVER -> enqueue(ALL, 0); wait_for(hold[me])
        :: else
        fi;
        atomic {
            if
            :: hold[me] != 0 && !OVER -> start_writing()
            :: else
            fi
        }
        stop_writing();
        if
        :: !OVER -> give(hold[me])
        :: else
        fi
    :: else -> break
    od
}

#ifdef LATE /* the reply to a downgrade is lost: the statement runs on while the client gives the hold back */
proctype late(byte me) {
    STATEMENT;
    shrink(UPGRADEABLE, SHARED)
}
#endif

/* Upgradeable, exclusive, then shared. */
proctype keeper(byte me) {
    STATEMENT;
    byte rounds = ROUNDS;
    do
    :: rounds > 0 && !OVER ->
        rounds--;
        take(UPGRADEABLE, hold[me], false);
        if
        :: hold[me] == 0 && !OVER -> enqueue(UPGRADEABLE, 0); wait_for(hold[me])
        :: else
        fi;
        atomic {
            if
            :: hold[me] != 0 && !OVER -> start_keeping(); start_reading()
            :: else
            fi
        }
        if
        :: keeps[me] && !OVER ->
            take(ALL - UPGRADEABLE, more[me], true);
            if
#ifdef WRONG_TAIL   /* the upgrade waits at the end of the queue */
            :: more[me] == 0 && !OVER -> enqueue(ALL - UPGRADEABLE, 0); wait_for(more[me])
#else
            :: more[me] == 0 && !OVER -> enqueue(ALL - UPGRADEABLE, 1); wait_for(more[me])
#endif
            :: else
            fi;
            stop_reading();
            atomic {
                if
                :: more[me] != 0 && !OVER -> start_writing()
                :: else
                fi
            }
            stop_writing();
            if  /* back to shared: the second grant, then a part of the first */
            :: atomic { more[me] != 0 && !OVER -> stop_keeping(); start_reading() }
               give(more[me])
            :: else
            fi;
            stop_keeping();
            if
#ifdef LATE
            :: !OVER && hold[me] == UPGRADEABLE -> run late(me)
#else
            :: !OVER && hold[me] == UPGRADEABLE -> shrink(UPGRADEABLE, SHARED)
#endif
            :: else
            fi
        :: else
        fi;
        stop_keeping();
        stop_reading();
        if
        :: !OVER -> give(hold[me])
        :: else
        fi
    :: else -> break
    od
}

/* A session expires: its client knows first, then another client ends it, deletes its entries and takes back what it
 * has. What is not a hold yet, because a grant or a take was under way, is found by the next sweep. */
proctype lapse() {
    STATEMENT;
    byte me;
    do
    :: lapses > 0 ->
        lapses--;
        if
        :: me = 1
        :: CLIENTS > 1 -> me = CLIENTS
        fi;
        d_step {
            lapsed[me] = 1;
            readers = readers - reads[me]; reads[me] = 0;
            writers = writers - writes[me]; writes[me] = 0;
            keepers = keepers - keeps[me]; keeps[me] = 0
        }
        ended[me] = 1;
        d_step { ticket[me] = 0; want[me] = 0 }
        sweep(me);
        grant()
    :: else -> break
    od;
    /* The reaper's last round. */
    timeout;
    me = 1;
    do
    :: me <= CLIENTS ->
        if
        :: ended[me] -> sweep(me)
        :: else
        fi;
        me++
    :: else -> break
    od;
    me = 1;
    grant()
}

init {
    byte c = 1;
    atomic {
        do
        :: c <= CLIENTS ->
            if
            :: c <= READERS -> run reader(c)
            :: c > READERS && c <= READERS + WRITERS -> run writer(c)
            :: else -> run keeper(c)
            fi;
            c++
        :: else -> break
        od;
        c = 0;
#if LAPSES > 0
        run lapse()
#endif
    }
}
