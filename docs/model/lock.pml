/* The lock of a name: its row (rowlock_lock) with a sole holder inline, its counted holds (rowlock_hold), its queue
 * (rowlock_ticket) and its clients' sessions, as PostgreSQL's statements and the threads of a client do it. README.md says
 * how to read it, what is left out, and what each run showed.
 *
 * A statement at READ COMMITTED is
 *   1. a snapshot: what it reads, into variables of its process (read_rows);
 *   2. for a statement that ends or upgrades a hold: it waits for the hold's lock, and re-reads that hold;
 *   3. it waits for the row's lock, re-reads that row and nothing else, and commits.
 * The lock of the row and the commit are one step: what is between them no other statement can tell from before, except
 * in a request for several names, which takes its locks one by one.
 *
 * Weights: shared 1, upgradeable 4; room 7. In a queue a sole entry weighs SOLE, more than there is room.
 *
 * Clients, all with -D: C1 … C4 are SOLE, SHARED, UPGRADES (upgradeable, then sole on its hold) or, with SEVERAL,
 * BOTH (a request for two names). Sizes: ROUNDS (locks each takes), LAPSES (sessions that expire while their
 * client lives), DEATHS (clients that are killed), CANCELS (waiters that give up), BEATS (heartbeats).
 * Ways: LOWERS (a sole hold may become shared), DOWNGRADES (an upgraded one upgradeable again), SHRINKS (and then shared).
 * Initial states. HELD: client 1 has the lock, the others enqueue at once. CHAIN: three clients amid hand-overs that need
 * not wait for the disk; BEFORE: the entry of 2 is before that of 1, to which the token is promised; SOON: the crash comes first;
 * LEFT: 3 was killed, and its session has expired.
 * Parts: REPLIES (of releases are lost), LATE (a statement whose reply was lost runs on beside the release), CRASH (the
 * server loses what was not flushed), REAPER, FENCE, RETAKE, PROMISE, WATERMARK, FAIR (nobody is overtaken),
 * FORCE, REQUEST (an operator ends, or asks for, what client VICTIM has), SEMAPHORE (the name becomes a semaphore's),
 * BATCH (sole takes as acquire_all sends them for names that are free).
 * Faults of the protocol, each known to be wrong: WRONG_…; README.md lists them. */

#define SOLE 9
#define SHARED 1
#define UPGRADES 4
#define ROOM 7      /* belief in a sole hold weighs as much */

#ifndef C1
#define C1 SOLE
#endif
#ifndef C2
#define C2 SOLE
#endif
#ifdef C4
#define CLIENTS 4
#define WANT(s) ((s) == 1 -> C1 : ((s) == 2 -> C2 : ((s) == 3 -> C3 : C4)))
#elif defined(C3)
#define CLIENTS 3
#define WANT(s) ((s) == 1 -> C1 : ((s) == 2 -> C2 : C3))
#else
#define CLIENTS 2
#define WANT(s) ((s) == 1 -> C1 : C2)
#endif
/* Clients may ask for BOTH names: for A1 of the first and B1 of the second, A2 and B2, A3 and B3. */
#define BOTH 0
#ifdef SEVERAL
#ifndef A1
#define A1 0
#define B1 0
#endif
#ifndef A3
#define A3 0
#define B3 0
#endif
#define OF(c, x1, x2, x3) ((c) == 1 -> x1 : ((c) == 2 -> x2 : x3))
#define WEIGHT(l, c) (WANT(c) != BOTH -> WANT(c) : ((l) == 0 -> OF(c, A1, A2, A3) : OF(c, B1, B2, B3)))
#define MEMBERS(c) (WANT(c) == BOTH)
#else
#define WEIGHT(l, c) WANT(c)
#define MEMBERS(c) false
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

#ifdef MIX      /* C1=MIXED: first shared, then sole */
byte wants = SHARED;
#define MIXED (wants)
#endif

/* --- the tables --------------------------------------------------------------------------------- */

/* A client has at most one hold and one entry of a name. In a session, a ticket and a grant id 0 means NULL. */
#ifdef SEVERAL
#define NAMES 2
#define AT(l, c) ((l) * (CLIENTS + 1) + (c))
#define CELLS (2 * CLIENTS + 2)
#else
#define NAMES 1
#define AT(l, c) (c)
#define CELLS (CLIENTS + 1)
#endif

/* rowlock_lock */
bit present[NAMES];     /* the row exists */
byte token[NAMES];
byte sole[NAMES];       /* session of the sole holder, numbered as its client */
byte grant[NAMES];      /* its grant id: 8 times the client's number + the number of the attempt */
byte used[NAMES];
byte promised[NAMES];   /* successor: the grant id for which the next token is reserved */
byte served[NAMES];     /* the watermark: queues are read from here on */
bit row_deadline[NAMES], row_over[NAMES];   /* the sole holder's own deadline: set, passed */
byte made[NAMES];       /* which row of this name it is: a statement finds no row that is younger than its snapshot */

#ifdef SEMAPHORE
bit semaphore;          /* capacity: the name is a semaphore's */
#define IS_SEMAPHORE semaphore
#else
#define IS_SEMAPHORE 0
#endif

/* rowlock_hold */
byte hold[CELLS];       /* weight; 0: there is none */
byte hgrant[CELLS];
byte htoken[CELLS];
bit deadline[CELLS], over[CELLS];           /* set, passed */
#ifdef CRASH    /* and one that a crash has brought about: its entry was done with, came back, and was served */
byte more[CELLS];
#define MORE(l, c) more[AT(l, c)]
#else
#define MORE(l, c) 0
#endif

/* rowlock_ticket */
byte ticket[CELLS];     /* 1: an upgrade's, before all others */
byte place[CELLS];      /* its grant id; of an upgrade, that of its hold */
byte next_ticket = 2;
#define UP(l, c) (ticket[AT(l, c)] == 1)

/* rowlock_token_floor */
byte floor, settled;

/* rowlock_session: one for each client */
bit there[CLIENTS + 1];
bit ended[CLIENTS + 1];
#define FAR 2   /* expires_at: the client's trust window is open until this is NEAR */
#define NEAR 1
#define PAST 0
byte expires[CLIENTS + 1];

#define LIVE(c) (there[c] && !ended[c] && expires[c] != PAST)
#ifdef WRONG_CLOCK  /* what an expired session has is taken without ending the session first */
#define DEAD(c) (!there[c] || ended[c] || expires[c] == PAST)
#else
#define DEAD(c) (!there[c] || ended[c])
#endif
#define MINE(l, c, g) (present[l] && sole[l] == (c) && grant[l] == (g))
#define HOLDS(l, c, g) (hold[AT(l, c)] != 0 && hgrant[AT(l, c)] == (g))
#define SOLE_DEAD(l) (sole[l] != 0 && (DEAD(sole[l]) || row_over[l]))
/* The row names this hold as the sole holder, too. */
#define NAMED(l, c) (sole[l] == (c) && grant[l] == hgrant[AT(l, c)])
#define FREE(l) (!present[l] || ((sole[l] == 0 || SOLE_DEAD(l)) && used[l] == 0 && !IS_SEMAPHORE))
#define HOLD_DEAD(l, c) (hold[AT(l, c)] + MORE(l, c) != 0 && (DEAD(c) || over[AT(l, c)]))
/* An entry that can be served; an upgrade's needs its hold. */
#define STANDING(l, c) (ticket[AT(l, c)] != 0 && LIVE(c) && (!UP(l, c) || (HOLDS(l, c, place[AT(l, c)]) && !over[AT(l, c)])))

/* --- locks, notifications, the disk ------------------------------------------------------------- */

bit row_fenced[NAMES];      /* a transaction of the sole holder's caller */
bit row_locked[NAMES];      /* by a request for several names */
bit hold_locked[CELLS];     /* it is being ended, or asked for */
byte hold_shared[CELLS];    /* by fences, and by upgrades under way */
bit beating[CLIENTS + 1];   /* a heartbeat has locked the session's row */

byte notified[CLIENTS + 1]; /* of a grant: its id and token */
byte notified_token[CLIENTS + 1];
bit called[CLIENTS + 1];    /* with the token 0: a request for several names is first in a queue, and fits */

byte epoch;                 /* crashes so far: a statement sent before the last one is lost */

#ifdef CRASH
bit d_present, d_deadline[CELLS], d_over[CELLS], d_row_deadline, d_row_over;
byte d_token, d_sole, d_grant, d_used, d_promised, d_served, d_floor, d_settled;
byte d_more[CELLS], d_hold[CELLS], d_hgrant[CELLS], d_htoken[CELLS], d_ticket[CELLS], d_place[CELLS];
bit d_there[CLIENTS + 1], d_ended[CLIENTS + 1];
byte d_i;
/* A commit that waits for the disk; it makes all earlier commits durable, too. */
#define FLUSH                                                                                       \
    d_present = present[0]; d_token = token[0]; d_sole = sole[0]; d_grant = grant[0]; d_used = used[0]; \
    d_promised = promised[0]; d_served = served[0]; d_floor = floor; d_settled = settled;           \
    d_row_deadline = row_deadline[0]; d_row_over = row_over[0]; d_i = 1;                            \
    do                                                                                              \
    :: d_i <= CLIENTS -> d_there[d_i] = there[d_i]; d_ended[d_i] = ended[d_i];                      \
                         d_hold[d_i] = hold[d_i]; d_hgrant[d_i] = hgrant[d_i]; d_htoken[d_i] = htoken[d_i]; \
                         d_more[d_i] = more[d_i];                                                   \
                         d_deadline[d_i] = deadline[d_i]; d_over[d_i] = over[d_i];                  \
                         d_ticket[d_i] = ticket[d_i]; d_place[d_i] = place[d_i]; d_i++              \
    :: else -> break                                                                                \
    od; d_i = 0
#define INTACT (e == epoch)     /* the server has not crashed since the statement was sent */
#define EPOCH epoch
#else
#define FLUSH skip
#define INTACT true
#define EPOCH 0
#endif
#ifdef WRONG_8  /* sole grants, too, are committed asynchronously */
#define FLUSH_GRANT skip
#else
#define FLUSH_GRANT FLUSH
#endif
#ifdef WRONG_UNFLUSHED  /* a counted grant is believed before it is on disk */
#define FLUSH_READ skip
#else
#define FLUSH_READ FLUSH
#endif
#ifdef WRONG_ASYNC  /* a change of what is held is committed asynchronously */
#define FLUSH_CHANGE skip
#else
#define FLUSH_CHANGE FLUSH
#endif

/* --- the clients -------------------------------------------------------------------------------- */

bit dead[CLIENTS + 1];      /* killed */
bit trust[CLIENTS + 1];     /* the trust window is open; once closed it stays closed */
byte knows[CLIENTS + 1];    /* the grant id that it has requested and not yet released */
bit due[CELLS];             /* its waiter loop must check the queue */
bit at_work[CELLS];         /* and is doing so */
bit waiting[CLIENTS + 1];   /* queued, and neither notified nor lost */
bit running[CLIENTS + 1];   /* a statement that may make a row is in flight, */
bit older[CLIENTS + 1];     /* and was sent before the floor was raised */
bit taken_away[CLIENTS + 1];/* its client knows that an operator has ended its grant, or asked for it */

byte lapses = LAPSES, deaths = DEATHS, cancels = CANCELS, beats = BEATS;

/* --- what must hold ----------------------------------------------------------------------------- */

byte mode[CELLS];           /* what a client believes that it holds: 0, SHARED, UPGRADES, ROOM */
byte fmode[CELLS];          /* and of its caller's open transaction that is fenced */
bit overlap;                /* exclusion */
byte written, read_at;      /* fenced writes: a sole holder's token is above that of every write before it, and */
                            /* a counted holder's above that of every sole holder's */
bit stale_write;
byte top[NAMES], top_grant[NAMES];  /* each grant's token is above all that a client was told. A grant that a crash has */
bit token_fell;             /* undone may be made again, with the same id and the same token. */
bit robbed[CLIENTS + 1];    /* a dead session stays dead: a session that was taken from as from a dead one */
bit revived;                /* is never alive again */
bit miscounted;             /* in every committed state `used` is the sum of the holds; beside a sole holder there */
                            /* is its own hold at most */
bit mixed;                  /* SEMAPHORE: nobody holds a semaphore's name as a mutex */
bit part;                   /* SEVERAL: all or none */
bit met_fence;              /* no sweep waits for a fence, with a hold locked */
bit overtaken;              /* FAIR: nobody who asked after a live waiter's entry was there comes before it */
/* No lost wake-up: no end state in which a waiter is queued. The wait in the queue is no end label,
 * and no process loops forever: every process that can take a step takes it. */

hidden byte x_i, x_sum;
inline check_overlap(x_l) {
    x_i = 1; x_sum = 0;
    do
    :: x_i <= CLIENTS ->
        x_sum = x_sum + (mode[AT(x_l, x_i)] > fmode[AT(x_l, x_i)] -> mode[AT(x_l, x_i)] : fmode[AT(x_l, x_i)]);
        x_i++
    :: else -> break
    od;
    overlap = x_sum > ROOM;
    assert(!overlap)
}

inline check_sum(x_l) {
    x_i = 1; x_sum = 0;
    do
    :: x_i <= CLIENTS -> x_sum = x_sum + hold[AT(x_l, x_i)] + MORE(x_l, x_i); x_i++
    :: else -> break
    od;
    miscounted = used[x_l] != x_sum ||
                 (sole[x_l] != 0 && used[x_l] != 0 && (hold[AT(x_l, sole[x_l])] != used[x_l] || !NAMED(x_l, sole[x_l])));
    assert(!miscounted);
    mixed = IS_SEMAPHORE && (sole[x_l] != 0 || used[x_l] != 0);
    assert(!mixed)
}

inline believe(x_l, who, what) {
    d_step {
        mode[AT(x_l, who)] = what;
        check_overlap(x_l)
    }
}

/* A new token, and whether a client was told it. */
inline check_token(x_l, to_g, to_t) {
    token_fell = !((to_t) > top[x_l] || ((to_t) == top[x_l] && (to_g) == top_grant[x_l]));
    assert(!token_fell)
}
inline told(x_l, to_g, to_t) {
    top_grant[x_l] = ((to_t) >= top[x_l] -> (to_g) : top_grant[x_l]);
    top[x_l] = ((to_t) > top[x_l] -> (to_t) : top[x_l])
}

/* --- pieces of statements ----------------------------------------------------------------------- */

#ifdef WRONG_STALE
#define ALSO ; byte stale
#else
#define ALSO
#endif
/* Variables of a process that sends statements. seen[i] is the ticket of a waiter i that can be served. */
#define STATEMENT                                                                                   \
    byte e, s_token, s_sole, s_floor, s_heir, s_row, pick, i, new, todo, whose, s_from;             \
    bit s_free, s_dead, s_there, s_mine, s_waited, broken, ok;                                      \
    byte seen[CLIENTS + 1] ALSO

/* A queue that only a sole grant reads begins after the watermark, and has no upgrades. */
#ifdef WATERMARK
#define FROM(l) (served[l] > 1 -> served[l] : 1)
#else
#define FROM(l) 1
#endif

/* The snapshot. */
inline read_rows(x_l) {
    e = EPOCH;
    s_there = present[x_l]; s_free = FREE(x_l); s_dead = SOLE_DEAD(x_l); s_sole = sole[x_l]; s_token = token[x_l];
    s_floor = floor; s_row = made[x_l]; s_heir = 0; s_waited = 0; s_from = FROM(x_l);
    i = 1;
    do
    :: i <= CLIENTS ->
        seen[i] = (STANDING(x_l, i) -> ticket[AT(x_l, i)] : 0);
        s_waited = s_waited || seen[i] != 0;
        s_heir = ((promised[x_l] != 0 && seen[i] != 0 && place[AT(x_l, i)] == promised[x_l]) -> i : s_heir);
        i++
    :: else -> break
    od;
    i = 0
}

/* A statement has ended: its reply has arrived or will not come. */
inline forget_rows() {
    broken = !INTACT;
    s_there = 0; s_free = 0; s_dead = 0; s_sole = 0; s_mine = 0; s_token = 0; s_floor = 0; s_row = 0; s_heir = 0;
    s_waited = 0; pick = 0; new = 0; e = 0; whose = 0; s_from = 0;
    i = 1;
    do
    :: i <= CLIENTS -> seen[i] = 0; i++
    :: else -> break
    od;
    i = 0
}

#define LOCKABLE(l) ((!row_fenced[l] && !row_locked[l]) || !INTACT)
#define SAME_ROW(l) (present[l] && s_there && made[l] == s_row)

/* The first entry of the snapshot that still exists. */
#ifdef WRONG_3B  /* the delete does not check that the ticket still exists */
#define STANDS(l, c) (seen[c] != 0 && expires[c] != PAST)
#else
#define STANDS(l, c) (seen[c] != 0 && ticket[AT(l, c)] == seen[c] && expires[c] != PAST)
#endif
inline first_entry(x_l, from) {
    pick = 0;
    i = 1;
    do
    :: i <= CLIENTS ->
        pick = ((STANDS(x_l, i) && seen[i] > (from) && (s_heir == 0 || s_heir == i) &&
                 (pick == 0 || seen[i] < seen[pick])) -> i : pick);
        i++
    :: else -> break
    od;
    i = 0
}
/* An upgrade, and what a sole hold is lowered to, keep the deadline that an operator has set. */
#ifdef WRONG_DEADLINE
#define CARRIED(d) 0
#else
#define CARRIED(d) d
#endif

/* What a grant with the id g skips: a token that is reserved for another. */
#define LEFT_OUT(l, g) ((promised[l] != 0 && promised[l] != (g)) -> 1 : 0)
#ifdef WRONG_SKIP   /* a counted grant does not */
#define LEFT_OUT_COUNTED(l) 0
#else
#define LEFT_OUT_COUNTED(l) LEFT_OUT(l, 0)
#endif
#ifdef WRONG_STAYS  /* nor does it clear the promise */
#define CLEAR_PROMISE(l) skip
#else
#define CLEAR_PROMISE(l) promised[l] = 0
#endif
/* A grant moves it to its ticket, unless it was set back since the snapshot. */
#ifdef WRONG_REWIND
#define WATER(l, t) t
#elif defined(WATERMARK)
#define WATER(l, t) (FROM(l) < s_from -> served[l] : (t))
#else
#define WATER(l, t) 0
#endif
#define ABOVE(a, b) (((a) > (b)) -> (a) : (b))

/* The row becomes a sole grant to a session, with a new token. The caller commits it. */
inline write_sole(x_l, to_s, to_g, to_t, from_s) {
    robbed[sole[x_l]] = robbed[sole[x_l]] || (sole[x_l] != 0 && sole[x_l] != (from_s) && !row_over[x_l] &&
                                              there[sole[x_l]] && !ended[sole[x_l]]);
    check_token(x_l, to_g, to_t);
    told(x_l, to_g, to_t);
    present[x_l] = 1; token[x_l] = to_t; sole[x_l] = to_s; grant[x_l] = to_g;
    notified[to_s] = to_g; notified_token[to_s] = to_t
}

inline write_hold(x_l, to_s, to_g, to_t, weight) {
#if !defined(WRONG_R4_TAKE) && !defined(WRONG_R4_LOWER)
    check_token(x_l, to_g, to_t);
#endif
#ifdef CRASH
    more[AT(x_l, to_s)] = more[AT(x_l, to_s)] + hold[AT(x_l, to_s)];
#endif
    hold[AT(x_l, to_s)] = weight; hgrant[AT(x_l, to_s)] = to_g; htoken[AT(x_l, to_s)] = to_t;
    deadline[AT(x_l, to_s)] = 0; over[AT(x_l, to_s)] = 0;
    token[x_l] = to_t; used[x_l] = used[x_l] + weight
}

/* The row has no sole holder any more. */
#define FREED(l) sole[l] = 0; grant[l] = 0; row_deadline[l] = 0; row_over[l] = 0
#define NO_HOLD(l, c) hold[AT(l, c)] = 0; hgrant[AT(l, c)] = 0; htoken[AT(l, c)] = 0; deadline[AT(l, c)] = 0; over[AT(l, c)] = 0
#define NO_ENTRY(l, c) ticket[AT(l, c)] = 0; place[AT(l, c)] = 0

/* Commits a sole grant to `pick`, and deletes its entry. */
inline give_to_pick(x_l, giver) {
    new = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT(x_l, place[AT(x_l, pick)]);
    i = place[AT(x_l, pick)];
#ifdef WRONG_3B
    i = (i == 0 -> 8 * pick : i);   /* cancelled: an id that no client knows any more */
#endif
    write_sole(x_l, pick, i, new, giver);
    i = 0; new = 0;
    served[x_l] = WATER(x_l, seen[pick]);
    row_deadline[x_l] = 0; row_over[x_l] = 0;
    promised[x_l] = 0; NO_ENTRY(x_l, pick);
    check_sum(x_l);
    FLUSH_GRANT
}

/* --- serving the queue -------------------------------------------------------------------------- */

/* What a sweep takes: holds of the dead. What another transaction has locked is left, and the hold that the row names (R6). */
#ifdef WRONG_SWEEP      /* a fence does not keep the hold */
#define UNLOCKED(l, c) (!hold_locked[AT(l, c)])
#else
#define UNLOCKED(l, c) (!hold_locked[AT(l, c)] && hold_shared[AT(l, c)] == 0)
#endif
/* clear_sole comes first. */
#ifdef WRONG_R6     /* the other way round */
#define SWEEPABLE(l, c) (HOLD_DEAD(l, c) && UNLOCKED(l, c))
#define TO_CLEAR(l) (s_dead && (used[l] != 0 || WEIGHT(l, pick) != SOLE) && whose == 0)
#else
#define SWEEPABLE(l, c) (HOLD_DEAD(l, c) && UNLOCKED(l, c) && !NAMED(l, c))
#define TO_CLEAR(l) (s_dead && (used[l] != 0 || WEIGHT(l, pick) != SOLE))
#endif

#define NOTHING 0
#define LOOK 1          /* look at the row and its queue, */
#define GRANT_SOLE 2    /* grant_next: a free row to the first, which is sole, */
#define GRANT_COUNTED 3 /* grant_counted: the longest prefix that fits, */
#define GRANT_UPGRADE 4 /* grant_upgrade, */
#define CLEAR 5         /* clear_sole, */
#define SWEEP 6

/* The look was old, and another kind is first. */
#ifdef WRONG_CHOICE     /* then nothing is done */
#define OTHER(next) NOTHING
#else
#define OTHER(next) next
#endif
/* names_with_waiters: what comes first, and which statement is for it. That statement runs later, and has a snapshot of
 * its own. */
inline look(x_l) {
    d_step {
        read_rows(x_l);
        todo = NOTHING;
#ifdef WRONG_KEPT
        s_heir = 0;
#endif
        first_entry(x_l, 0);
        if
        :: pick == 0
#ifdef WRONG_15     /* a row that the reaper has deleted is not restored */
        :: pick != 0 && !present[x_l]
#else
        :: pick != 0 && !present[x_l] ->    /* make_lock */
            present[x_l] = 1; token[x_l] = floor; made[x_l]++;
            FLUSH;
            todo = LOOK
#endif
        :: pick != 0 && present[x_l] ->
            whose = 0; i = 1;
            do
            :: i <= CLIENTS -> whose = (SWEEPABLE(x_l, i) -> i : whose); i++
            :: else -> break
            od;
            i = 0;
            if
            :: TO_CLEAR(x_l) -> todo = CLEAR
            :: !TO_CLEAR(x_l) && whose != 0 -> todo = SWEEP
            :: else ->
                if
                :: UP(x_l, pick) && sole[x_l] == 0 -> todo = GRANT_UPGRADE
                :: !UP(x_l, pick) && WEIGHT(x_l, pick) == SOLE && s_free -> todo = GRANT_SOLE
                :: !UP(x_l, pick) && WEIGHT(x_l, pick) != SOLE && sole[x_l] == 0 -> todo = GRANT_COUNTED
                :: else
                fi
            fi
        fi;
        if
        :: todo == CLEAR || todo == SWEEP   /* these judge in this snapshot */
        :: else -> forget_rows(); broken = 0
        fi
    }
}

/* A dead sole holder goes by compare-and-set. */
inline clear_sole(x_l) {
    atomic {
        LOCKABLE(x_l);
        d_step {
            if
#ifdef WRONG_CLEAR  /* by name */
            :: INTACT && present[x_l] && sole[x_l] != 0 ->
#else
            :: INTACT && present[x_l] && token[x_l] == s_token && sole[x_l] == s_sole ->
#endif
                robbed[sole[x_l]] = robbed[sole[x_l]] || (!row_over[x_l] && sole[x_l] != 0 && there[sole[x_l]] && !ended[sole[x_l]]);
                FREED(x_l);
                check_sum(x_l)
            :: else
            fi;
            forget_rows()
        }
    }
}

inline sweep(x_l) {
    atomic {
        if
        :: INTACT && HOLD_DEAD(x_l, whose) && UNLOCKED(x_l, whose) ->
            d_step {
                hold_locked[AT(x_l, whose)] = 1; s_mine = 1;
                met_fence = row_fenced[x_l];
                assert(!met_fence)
            }
        :: else -> d_step { forget_rows() }
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT ->
                    robbed[whose] = robbed[whose] || (!over[AT(x_l, whose)] && there[whose] && !ended[whose]);
                    used[x_l] = used[x_l] - hold[AT(x_l, whose)] - MORE(x_l, whose);
#ifdef CRASH
                    more[AT(x_l, whose)] = 0;
#endif
                    NO_HOLD(x_l, whose); hold_locked[AT(x_l, whose)] = 0;
                    check_sum(x_l)
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* The reaper has deleted the row since the look, or since the snapshot. */
#ifdef WRONG_GONE       /* then nothing is done */
#define GONE(l) 0
#else
#define GONE(l) (s_waited && !SAME_ROW(l))
#endif
inline grant_next(x_l) {
    atomic {
        d_step {
            todo = GRANT_SOLE;
            read_rows(x_l);
            first_entry(x_l, s_from);
            if
            :: s_free && s_there && pick != 0 -> pick = 0
            :: else -> todo = (GONE(x_l) -> LOOK : NOTHING); forget_rows(); broken = 0
            fi
        }
    }
    if
    :: todo != GRANT_SOLE
    :: else ->
        atomic {
#ifdef WRONG_6      /* SKIP LOCKED */
            if
            :: !LOCKABLE(x_l) -> d_step { todo = NOTHING; forget_rows() }
            :: else
            fi;
            LOCKABLE(x_l) || todo == NOTHING;
#else
            LOCKABLE(x_l);
#endif
            d_step {
                if
                :: todo == NOTHING
                :: todo != NOTHING && INTACT && present[x_l] && token[x_l] == s_token ->
                    first_entry(x_l, s_from);
                    if
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE && !MEMBERS(pick) -> give_to_pick(x_l, 0); todo = NOTHING
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE && MEMBERS(pick) -> called[pick] = 1; todo = NOTHING
                    :: pick != 0 && WEIGHT(x_l, pick) != SOLE -> todo = OTHER(LOOK) /* it says that the first is counted */
                    :: else -> todo = LOOK
                    fi
                :: else ->
                    todo = LOOK;
#ifdef WRONG_5      /* assumes that the process that was faster has served the queue */
                    todo = NOTHING;
#endif
#ifdef WRONG_3A     /* the entry is deleted before the row is known to be free */
                    first_entry(x_l, s_from);
                    if
                    :: INTACT && pick != 0 -> NO_ENTRY(x_l, pick)
                    :: else
                    fi;
#endif
                    skip
                fi;
                forget_rows()
            }
        }
    fi
}

/* Without a sole holder, and while no promise of the next token can be kept. */
#ifdef WRONG_KEPT       /* the first entry is served, a promise or not */
#define RESERVED 0
#else
#define RESERVED s_heir
#endif
inline grant_counted(x_l) {
    d_step { read_rows(x_l) }
    atomic {
        LOCKABLE(x_l);
        d_step {
            todo = (GONE(x_l) -> LOOK : NOTHING);
            if
            :: INTACT && SAME_ROW(x_l) && sole[x_l] == 0 && !IS_SEMAPHORE && s_waited && RESERVED == 0 ->
                s_heir = 0;
                ok = 0;
                do
                :: true ->
                    first_entry(x_l, 0);
#ifdef WRONG_PREFIX     /* serves past a sole waiter */
                    if
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE -> seen[pick] = 0; first_entry(x_l, 0); ok = 1
                    :: else
                    fi;
#endif
                    if
                    /* served by its client alone, and so is nobody behind it */
                    :: pick != 0 && MEMBERS(pick) && WEIGHT(x_l, pick) != SOLE && used[x_l] + WEIGHT(x_l, pick) <= ROOM ->
                        called[pick] = 1; ok = 1; break
                    :: pick != 0 && !MEMBERS(pick) && !UP(x_l, pick) && WEIGHT(x_l, pick) != SOLE &&
                       used[x_l] + WEIGHT(x_l, pick) <= ROOM ->
                        x_i = 1;
                        do
                        :: x_i <= CLIENTS ->
                            overtaken = overtaken || (x_i != pick && STANDING(x_l, x_i) && ticket[AT(x_l, x_i)] < ticket[AT(x_l, pick)] &&
                                                       (seen[x_i] == 1 || !UP(x_l, x_i)));
                            x_i++
                        :: else -> break
                        od;
#ifdef FAIR
                        assert(!overtaken);
#else
                        overtaken = 0;
#endif
                        new = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT_COUNTED(x_l);
                        i = place[AT(x_l, pick)]; whose = WEIGHT(x_l, pick);
                        write_hold(x_l, pick, i, new, whose);
                        i = 0; whose = 0;
                        notified[pick] = hgrant[AT(x_l, pick)]; notified_token[pick] = new;
                        served[x_l] = WATER(x_l, seen[pick]);
                        CLEAR_PROMISE(x_l);
                        NO_ENTRY(x_l, pick); seen[pick] = 0; ok = 1
                    :: else -> break
                    fi
                od;
                /* what is first now, and of another kind */
                todo = ((!ok && pick != 0 && WEIGHT(x_l, pick) == SOLE) -> OTHER(GRANT_SOLE) : NOTHING);
                todo = ((!ok && pick != 0 && UP(x_l, pick)) -> OTHER(GRANT_UPGRADE) : todo);
                check_sum(x_l)
            :: INTACT && SAME_ROW(x_l) && sole[x_l] == 0 && s_waited && RESERVED != 0 -> todo = GRANT_SOLE
            :: else
            fi;
            ok = 0;
            forget_rows()
        }
    }
}

/* The row is locked first: the hold is not waited for (R2). */
inline grant_upgrade(x_l) {
    d_step { read_rows(x_l) }
    atomic {
        LOCKABLE(x_l);
        d_step {
            todo = (GONE(x_l) -> LOOK : NOTHING);
            first_entry(x_l, 0);
            if
            :: INTACT && SAME_ROW(x_l) && sole[x_l] == 0 && used[x_l] > 0 && pick != 0 && UP(x_l, pick) ->
                if
#ifdef WRONG_BASE   /* served by the number alone */
                :: used[x_l] == UPGRADES ->
#else
                :: HOLDS(x_l, pick, place[AT(x_l, pick)]) && !hold_locked[AT(x_l, pick)] && !over[AT(x_l, pick)] &&
                   used[x_l] == hold[AT(x_l, pick)] ->
#endif
                    new = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT(x_l, 0);
                    i = place[AT(x_l, pick)];
                    write_sole(x_l, pick, i, new, 0);
                    i = 0;
                    row_deadline[x_l] = CARRIED(deadline[AT(x_l, pick)]); row_over[x_l] = CARRIED(over[AT(x_l, pick)]);
                    promised[x_l] = 0; NO_ENTRY(x_l, pick);
                    check_sum(x_l);
                    FLUSH_GRANT
                :: else
                fi
            :: INTACT && SAME_ROW(x_l) && sole[x_l] == 0 && pick != 0 && !UP(x_l, pick) && used[x_l] > 0 ->
                todo = (WEIGHT(x_l, pick) == SOLE -> NOTHING : OTHER(GRANT_COUNTED))
            :: else
            fi;
            forget_rows()
        }
    }
}

inline serve(x_l) {
    todo = LOOK;
    do
    :: todo == LOOK -> look(x_l)
    :: todo == CLEAR -> clear_sole(x_l); todo = LOOK
    :: todo == SWEEP -> sweep(x_l); todo = LOOK
    :: todo == GRANT_SOLE -> grant_next(x_l)
    :: todo == GRANT_COUNTED -> grant_counted(x_l)
    :: todo == GRANT_UPGRADE -> grant_upgrade(x_l)
    :: todo == NOTHING -> broken = 0; break
    od
}

/* --- takes -------------------------------------------------------------------------------------- */

/* FAIR: no entry that was there when the caller asked is waiting now. */
#ifdef FAIR
inline ask(x_l) {
    before = 0; i = 1;
    do
    :: i <= CLIENTS -> before = (STANDING(x_l, i) -> before | (1 << i) : before); i++
    :: else -> break
    od;
    i = 0; asked = next_ticket
}
inline check_fair(x_l, me) {
    x_i = 1;
    do
    :: x_i <= CLIENTS ->
        overtaken = overtaken || (x_i != (me) && (before & (1 << x_i)) != 0 && STANDING(x_l, x_i) && ticket[AT(x_l, x_i)] < asked);
        x_i++
    :: else -> break
    od;
    assert(!overtaken)
}
#else
#define ask(x_l) skip
#define check_fair(x_l, me) skip
#endif
#ifdef WRONG_PASS   /* a newcomer passes the queue */
#define WAITED 0
#else
#define WAITED s_waited
#endif

#ifdef WRONG_BATCH      /* acquire_all, which compares no token, does not test these on the locked row */
#define EMPTY(l) true
#else
#define EMPTY(l) (used[l] == 0 && !IS_SEMAPHORE)
#endif
/* acquire: sole. The snapshot judges, the write compares the token. `gets` is the token, 0 for none; `held`: it is held,
 * or others wait. */
inline acquire(x_l, me, id, gets, held) {
    gets = 0; held = 0;
    atomic {
        d_step {
            ask(x_l);
            read_rows(x_l);
            s_mine = LIVE(me);
            first_entry(x_l, s_from);
            s_waited = s_heir != 0 || pick != 0;
            pick = 0;
            new = ABOVE(s_token, s_floor) + 1 + LEFT_OUT(x_l, 0);
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
        :: !s_free || WAITED || !s_mine -> d_step { held = s_mine; forget_rows() }
        :: else -> running[me] = 1
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
#ifdef WRONG_1  /* after the wait for the lock the row is re-read, the sessions are not */
                :: INTACT && (!present[x_l] || ((sole[x_l] == 0 || !alive[sole[x_l]]) && used[x_l] == 0)) ->
                    new = (new > token[x_l] -> new : token[x_l] + 1);
#elif defined(BATCH)
                :: INTACT && (!present[x_l] || (s_there && made[x_l] == s_row && sole[x_l] == 0 && promised[x_l] == 0 && EMPTY(x_l))) ->
                    new = (present[x_l] -> ABOVE(token[x_l], s_floor) + 1 : new);
#elif defined(WRONG_TOKEN)
                :: INTACT && (!present[x_l] || s_there) ->
#else
                :: INTACT && (!present[x_l] || (s_there && token[x_l] == s_token)) ->
#endif
                    made[x_l] = (present[x_l] -> made[x_l] : made[x_l] + 1);
                    gets = new;
                    write_sole(x_l, me, id, new, 0);
                    row_deadline[x_l] = 0; row_over[x_l] = 0;
                    promised[x_l] = 0;
                    check_sum(x_l);
                    check_fair(x_l, me);
                    FLUSH_GRANT
                :: else
                fi;
                running[me] = 0; older[me] = 0;
                forget_rows()
            }
        }
    :: else
    fi
}

#ifdef RETAKE
/* reacquire: by the token it was released with. */
inline reacquire(x_l, me, id, with, gets) {
    gets = 0;
    atomic {
        d_step {
            read_rows(x_l);
            s_mine = LIVE(me) && present[x_l] && sole[x_l] == 0 && promised[x_l] == 0 && floor <= with;
#ifndef WRONG_RETAKE    /* checks that it is free, not that no other client has held it since */
            s_mine = s_mine && token[x_l] == with;
#else
            s_mine = s_mine && used[x_l] == 0;
#endif
            i = 1;
            do
            :: i <= CLIENTS -> s_mine = s_mine && ticket[AT(x_l, i)] == 0; i++
            :: else -> break
            od;
            i = 0
        }
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
#ifdef WRONG_RETAKE
                :: INTACT && present[x_l] && sole[x_l] == 0 && used[x_l] == 0 ->
#else
                :: INTACT && present[x_l] && sole[x_l] == 0 && promised[x_l] == 0 && token[x_l] == with ->
#endif
                    gets = with + 1;
                    write_sole(x_l, me, id, gets, 0);
                    check_sum(x_l);
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

/* take: counted. R1: the row's own columns decide. Asynchronous. */
#ifdef WRONG_R5     /* beside a sole holder, too */
#define NOT_SOLE(l) true
#elif defined(WRONG_R1)     /* judges the sole holder's session in the write that takes */
#define NOT_SOLE(l) (sole[l] == 0 || !alive[sole[l]])
#else
#define NOT_SOLE(l) (sole[l] == 0)
#endif
#ifdef WRONG_COUNT  /* adds up the holds that it sees */
#define FITS(l, w) (s_sum + (w) <= ROOM)
#else
#define FITS(l, w) (used[l] + (w) <= ROOM && !IS_SEMAPHORE)
#endif
#ifdef WRONG_R4_TAKE    /* the token is not raised */
#define RAISED 0
#else
#define RAISED 1
#endif
inline take(x_l, me, id, weight, gets, held) {
    gets = 0; held = 0;
    atomic {
        d_step {
            ask(x_l);
            read_rows(x_l);
            s_mine = LIVE(me);
#ifdef WRONG_FROM       /* reads its queue from the watermark on, where an upgrade is not */
            first_entry(x_l, s_from);
            s_waited = s_heir != 0 || pick != 0;
            pick = 0;
#endif
#ifdef WRONG_R1
            i = 1;
            do
            :: i <= CLIENTS -> alive[i] = there[i] && !ended[i]; i++
            :: else -> break
            od;
            i = 0;
            s_dead = 0;
#endif
#ifdef WRONG_COUNT
            s_sum = 0; i = 1;
            do
            :: i <= CLIENTS -> s_sum = s_sum + hold[AT(x_l, i)]; i++
            :: else -> break
            od;
            i = 0;
#endif
            if
            :: !s_mine || WAITED -> pick = 1    /* nothing */
            :: s_mine && !WAITED && !s_there -> pick = 2
            :: s_mine && !WAITED && s_there && s_dead -> pick = 3
            :: s_mine && !WAITED && s_there && !s_dead && !(NOT_SOLE(x_l) && FITS(x_l, weight)) -> pick = 1
            :: else -> running[me] = 1
            fi
        }
        if
        :: pick == 1 -> d_step { held = s_mine; forget_rows() }
        :: pick == 2 -> d_step { pick = 0; running[me] = 1; s_mine = 0 }     /* make_lock */
        :: pick == 3 -> d_step { pick = 0; s_mine = 0 }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && SAME_ROW(x_l) && NOT_SOLE(x_l) && FITS(x_l, weight) ->
#ifdef WRONG_R1
                    FREED(x_l);
#endif
                    gets = ABOVE(token[x_l], s_floor) + RAISED + LEFT_OUT_COUNTED(x_l);
                    write_hold(x_l, me, id, gets, weight);
                    CLEAR_PROMISE(x_l);
                    check_sum(x_l);
                    check_fair(x_l, me)
                :: else
                fi;
                running[me] = 0; older[me] = 0;
#ifdef WRONG_COUNT
                s_sum = 0;
#endif
                forget_rows()
            }
        }
    :: !s_mine && running[me] ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && !present[x_l] -> present[x_l] = 1; token[x_l] = s_floor; made[x_l]++; FLUSH
                :: else
                fi;
                running[me] = 0; older[me] = 0;
                forget_rows()
            }
        }
    :: !s_mine && s_dead -> clear_sole(x_l)
    :: else
    fi
}

/* --- changes of what is held -------------------------------------------------------------------- */

/* upgrade: the caller's hold FOR SHARE, then the row, which names the hold as the sole holder besides. */
inline upgrade(x_l, me, id, gets) {
    gets = 0;
    atomic {
#ifdef WRONG_LOCK   /* the snapshot's word for its own hold */
        d_step { e = EPOCH; s_floor = floor; s_mine = LIVE(me) && HOLDS(x_l, me, id) && !over[AT(x_l, me)]; pick = hold[AT(x_l, me)] }
#else
        !hold_locked[AT(x_l, me)];
        d_step {
            e = EPOCH; s_floor = floor; s_mine = LIVE(me) && HOLDS(x_l, me, id) && !over[AT(x_l, me)]; pick = hold[AT(x_l, me)];
#ifdef WRONG_R2     /* deletes it */
            s_mine = s_mine && hold_shared[AT(x_l, me)] == 0;
            hold_locked[AT(x_l, me)] = s_mine
#else
            hold_shared[AT(x_l, me)] = hold_shared[AT(x_l, me)] + s_mine
#endif
        }
#endif
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && present[x_l] && sole[x_l] == 0 && used[x_l] == pick ->
                    gets = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT(x_l, 0);
#ifdef WRONG_R4_UPGRADE
                    gets = token[x_l];
#endif
                    write_sole(x_l, me, id, gets, 0);
                    notified[me] = 0; notified_token[me] = 0;
                    row_deadline[x_l] = CARRIED(deadline[AT(x_l, me)]); row_over[x_l] = CARRIED(over[AT(x_l, me)]);
                    promised[x_l] = 0;
#ifdef WRONG_R2
                    used[x_l] = 0; NO_HOLD(x_l, me);
#endif
                    FLUSH_GRANT
                :: else
                fi;
                if
                :: INTACT ->
#ifdef WRONG_R2
                    NO_HOLD(x_l, me); hold_locked[AT(x_l, me)] = 0;
#elif !defined(WRONG_LOCK)
                    hold_shared[AT(x_l, me)]--;
#endif
                    check_sum(x_l)
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* downgrade: the hold was there all the time. R4. */
inline downgrade(x_l, me, id, did) {
    did = 0;
    d_step { e = EPOCH; s_mine = MINE(x_l, me, id) }
    atomic {
        LOCKABLE(x_l) || !s_mine;
        d_step {
            if
            :: s_mine && INTACT && MINE(x_l, me, id) && used[x_l] > 0 ->
                did = 1;
                FREED(x_l);
#ifndef WRONG_R4_DOWNGRADE
                token[x_l] = token[x_l] + 1 + LEFT_OUT(x_l, 0);
                promised[x_l] = 0;
#endif
#ifndef WRONG_OLD_TOKEN     /* the hold keeps the token that it had before the upgrade */
                htoken[AT(x_l, me)] = token[x_l];
#endif
                told(x_l, id, token[x_l]);
                check_sum(x_l);
                FLUSH_CHANGE
            :: else
            fi;
            forget_rows()
        }
    }
}

/* lower: a sole hold becomes a counted one. R4. */
inline lower(x_l, me, id, weight, did) {
    did = 0;
    d_step { e = EPOCH; s_mine = MINE(x_l, me, id) }
    atomic {
        LOCKABLE(x_l) || !s_mine;
        d_step {
            if
            :: s_mine && INTACT && MINE(x_l, me, id) && used[x_l] == 0 ->
                did = 1;
                new = token[x_l] + 1 + LEFT_OUT(x_l, 0);
#ifdef WRONG_R4_LOWER
                new = token[x_l];
#endif
                pick = row_deadline[x_l]; s_dead = row_over[x_l];
                FREED(x_l);
                write_hold(x_l, me, id, new, weight);
                deadline[AT(x_l, me)] = CARRIED(pick); over[AT(x_l, me)] = CARRIED(s_dead);
                CLEAR_PROMISE(x_l);
                told(x_l, id, new);
                check_sum(x_l);
                FLUSH_CHANGE
            :: else
            fi;
            forget_rows()
        }
    }
}

/* shrink: of a hold that is not upgraded; names the weight before. */
inline shrink(x_l, me, id, from, to, did) {
    did = 0;
    atomic {
        !hold_locked[AT(x_l, me)] && hold_shared[AT(x_l, me)] == 0;
        d_step {
            e = EPOCH; s_mine = HOLDS(x_l, me, id) && hold[AT(x_l, me)] == from;
            hold_locked[AT(x_l, me)] = s_mine;
            if
            :: !s_mine -> forget_rows()
            :: else
            fi
        }
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT ->
                    did = 1;
                    used[x_l] = used[x_l] - (from - to); hold[AT(x_l, me)] = to; hold_locked[AT(x_l, me)] = 0;
                    check_sum(x_l);
                    FLUSH_CHANGE
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* --- releases ----------------------------------------------------------------------------------- */

#ifdef WRONG_NAME   /* freed by its name alone */
#define RELEASABLE(l, c, g) (present[l] && sole[l] != 0)
#else
#define RELEASABLE(l, c, g) MINE(l, c, g)
#endif
/* hand_over: `did` is whether it freed this grant, `whom` the client that was served. A counted entry is not: then the row
 * is freed, and the queue served after that. */
inline hand_over(x_l, my, id, did, whom) {
    did = 0; whom = 0;
    atomic {
        d_step {
            read_rows(x_l);
            s_mine = RELEASABLE(x_l, my, id)
        }
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && RELEASABLE(x_l, my, id) ->
                    did = 1;
                    first_entry(x_l, s_from);
                    if
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE && !MEMBERS(pick) -> whom = pick; give_to_pick(x_l, my)
                    :: else ->
                        called[pick] = called[pick] || (pick != 0 && MEMBERS(pick));
                        FREED(x_l); check_sum(x_l)  /* asynchronously: no FLUSH */
                    fi
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* give, and give_upgraded, which ends a sole part of the same grant as well. Hold first, row second (R2). Asynchronous. */
inline give(x_l, me, id, did) {
    did = 0;
#ifdef WRONG_STALE
    d_step { stale = hold[AT(x_l, me)] }
#endif
    atomic {
        !HOLDS(x_l, me, id) || (!hold_locked[AT(x_l, me)] && hold_shared[AT(x_l, me)] == 0);
        d_step {
            e = EPOCH; s_mine = HOLDS(x_l, me, id);
            if
            :: s_mine ->
                hold_locked[AT(x_l, me)] = 1;
#ifdef WRONG_STALE      /* lowers the row by a weight that was read before the hold was locked: see client */
                pick = stale
#else
                pick = hold[AT(x_l, me)]
#endif
            :: else -> forget_rows()
            fi
        }
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT ->
                    did = 1;
                    used[x_l] = used[x_l] - pick;
                    if
#ifndef WRONG_PLAIN     /* an upgraded hold is ended as if it were counted alone */
                    :: grant[x_l] == id && sole[x_l] == me -> FREED(x_l)
#endif
                    :: else
                    fi;
                    NO_HOLD(x_l, me); hold_locked[AT(x_l, me)] = 0;
                    check_sum(x_l)
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

#ifdef PROMISE
/* confirm_and_read_next: the next waiter and the one after it; what the row promises is on disk afterwards. A counted entry
 * is neither passed on to nor promised anything. */
inline settle(x_l, my, id) {
    d_step {
        next = 0; after = 0; kept = 0;
        read_rows(x_l);
        if
        :: MINE(x_l, my, id) ->
            next = s_heir;
            kept = s_heir != 0;
            i = 1;
            do
            :: i <= CLIENTS ->
                next = ((!kept && seen[i] > 1 && (next == 0 || seen[i] < seen[next])) -> i : next);
                i++
            :: else -> break
            od;
            i = 1;
            do
            :: i <= CLIENTS ->
                after = ((seen[i] > 1 && i != next && (after == 0 || seen[i] < seen[after])) -> i : after);
                i++
            :: else -> break
            od;
            i = 0;
            next = ((next != 0 && WEIGHT(x_l, next) == SOLE) -> next : 0);
            next_ticket_seen = (next != 0 -> ticket[AT(x_l, next)] : 0);
            after = ((after != 0 && WEIGHT(x_l, after) == SOLE) -> place[AT(x_l, after)] : 0);
#ifndef WRONG_UNSETTLED /* what the row promises need not be on disk */
            FLUSH
#endif
        :: else
        fi;
        forget_rows();
        broken = 0
    }
}

/* hand_over_to: to the waiter that settle read, with a promise to the one behind it. */
#define PASSABLE(l, c, g) (MINE(l, c, g) && ticket[AT(l, next)] == next_ticket_seen)
inline pass_on(x_l, my, id, did, whom) {
    did = 0; whom = 0;
    atomic {
        d_step {
            read_rows(x_l);
            s_mine = PASSABLE(x_l, my, id)
        }
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && PASSABLE(x_l, my, id) ->  /* else the waiter has left: all is rolled back */
                    i = place[AT(x_l, next)]; did = 1; whom = next;
                    new = token[x_l] + 1 + LEFT_OUT(x_l, i);
                    write_sole(x_l, next, i, new, my);
                    i = 0;
                    served[x_l] = WATER(x_l, next_ticket_seen);
                    row_deadline[x_l] = 0; row_over[x_l] = 0;
                    NO_ENTRY(x_l, next);
                    promised[x_l] = after;
#ifdef WRONG_PROMISE    /* no hand-over waits for the disk, whichever waiter is served */
                    promised[x_l] = 0; kept = 1;
#endif
                    check_sum(x_l);
                    if
                    :: kept     /* promised and settled: asynchronously */
                    :: else -> FLUSH
                    fi
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}
#endif

#ifdef WRONG_PROMISE
#define PROMISED_TO(g) 0
#else
#define PROMISED_TO(g) g
#endif
#define END_SESSION(c) ended[c] = 1; FLUSH

/* --- processes ---------------------------------------------------------------------------------- */

#define HOME 0
#define UPGRADED 13

#if CLIENTS == 2
#define ANY(l, what) (what(l, 1) || what(l, 2))
#elif CLIENTS == 3
#define ANY(l, what) (what(l, 1) || what(l, 2) || what(l, 3))
#else
#define ANY(l, what) (what(l, 1) || what(l, 2) || what(l, 3) || what(l, 4))
#endif
/* A check of the queue may have an effect. */
#define SERVABLE(l) (ANY(l, STANDING) && (!present[l] || sole[l] == 0 || SOLE_DEAD(l) || ANY(l, SWEEPABLE)))

/* A waiter ends a session that has expired and stops it (end_expired_session waits for a heartbeat that has the row), and
 * looks for what the dead hold, by the clock: both are polls. */
#define EXPIRED(l, c) (there[c] && !ended[c] && expires[c] == PAST && !beating[c] && \
                       (sole[l] == (c) || hold[AT(l, c)] != 0 || ticket[AT(l, c)] != 0))
inline end_expired(x_l, me) {
    d_step {
        ANY(x_l, EXPIRED) ->
        i = 1;
        do
        :: i <= CLIENTS && EXPIRED(x_l, i) -> END_SESSION(i); break
        :: else -> i++
        od;
        i = 0; due[AT(x_l, me)] = 1
    }
}
#define POLLED(l, me) (!due[AT(l, me)] && !at_work[AT(l, me)] && (ANY(l, SWEEPABLE) || (sole[l] != 0 && row_over[l])))

inline doubt(who) {
    d_step { mode[AT(HOME, who)] = 0 }
}

#ifdef FENCE
/* A transaction of the caller's: fence, a write, COMMIT. The client may have been suspended before each of them. */
inline close_fence() {
    d_step {
        if
        :: open && opened == EPOCH -> hold_shared[AT(HOME, s)]--; fmode[AT(HOME, s)] = 0
        :: else
        fi;
        open = 0; opened = 0
    }
}
inline fence_hold() {
    d_step { e = EPOCH; s_mine = HOLDS(HOME, s, g) && !over[AT(HOME, s)] && !ended[s] }
    if
    :: s_mine ->
        atomic {
            !hold_locked[AT(HOME, s)] || !INTACT;
            d_step {
                if
                :: INTACT && HOLDS(HOME, s, g) && !over[AT(HOME, s)] ->
                    stale_write = t < written;
                    assert(!stale_write);
                    read_at = (t > read_at -> t : read_at);
                    open = 1; opened = e; hold_shared[AT(HOME, s)]++; fmode[AT(HOME, s)] = has;
                    check_overlap(HOME)
                :: else
                fi;
                s_mine = 0; e = 0
            }
        }
        if
        :: close_fence()
        :: has == UPGRADES      /* it stays open: an upgrade follows */
        fi
    :: else -> e = 0
    fi
}
inline fence_sole() {
    d_step { e = EPOCH; s_mine = MINE(HOME, s, g) && token[HOME] == t && !ended[s] && !row_over[HOME] }
    if
    :: s_mine ->
#ifndef WRONG_FENCE     /* the write is not fenced */
        atomic {
            LOCKABLE(HOME);
            d_step {
                if
                :: INTACT && MINE(HOME, s, g) && token[HOME] == t ->
                    row_fenced[HOME] = 1; fmode[AT(HOME, s)] = ROOM;
                    check_overlap(HOME)
                :: else -> s_mine = 0
                fi
            }
        }
        if
        :: s_mine ->
#endif
            if
            :: d_step {
                if
                :: INTACT ->
                    stale_write = t < written || t < read_at;
                    assert(!stale_write);
                    written = t;
#ifndef WRONG_FENCE
                    row_fenced[HOME] = 0; fmode[AT(HOME, s)] = 0
#endif
                :: else
                fi;
                s_mine = 0 }
#ifndef WRONG_FENCE
            /* killed within the transaction: the server rolls it back, and serves no queue */
            :: atomic { INTACT && deaths > 0 && !due[s] && !at_work[s] ->
                        d_step { deaths--; row_fenced[HOME] = 0; fmode[AT(HOME, s)] = 0; s_mine = 0; e = 0 }
                        goto killed }
#endif
            fi
#ifndef WRONG_FENCE
        :: else
        fi
#endif
    :: else
    fi;
    e = 0
}
#endif

#ifdef LATE
/* A statement whose reply was lost, and which runs on. */
proctype late(byte s; byte g; byte what) {
    STATEMENT;
    byte got;
    if
    :: what == 0 -> upgrade(HOME, s, g, got)
    :: what == 1 -> shrink(HOME, s, g, UPGRADES, SHARED, got); due[s] = due[s] || got
    :: what == 2 -> lower(HOME, s, g, SHARED, got); due[s] = due[s] || got
    fi
}
#endif

/* The caller of a client whose grant was taken away may never release it. */
#if defined(FORCE) || defined(REQUEST)
inline may_not_answer() {
    if
    :: atomic { taken_away[s] -> goto finished }
    :: true
    fi
}
#else
#define may_not_answer() skip
#endif

/* A client: the thread that locks, and what its waiter loop does while that thread waits. */
proctype client(byte s) {
    STATEMENT;
    byte g, t, got, whom, rounds, attempt, connected, has, w;
    bit repeated, given_up;
#if defined(WRONG_1) || defined(WRONG_R1)
    bit alive[CLIENTS + 1];
#endif
#ifdef WRONG_COUNT
    byte s_sum;
#endif
#ifdef FAIR
    byte before, asked;
#endif
#ifdef RETAKE
    byte freed_with;
#endif
#ifdef PROMISE
    byte next, next_ticket_seen, after;
    bit kept;
#endif
#ifdef FENCE
    bit open;
    byte opened;
#endif

#if defined(CHAIN)
#ifdef QUIET
    d_step { g = 8 * s + 1; attempt = 1; rounds = ROUNDS }
#else
    d_step { g = 8 * s + 1; attempt = 1; rounds = (s == 3 -> 0 : ROUNDS) }
#endif
    if
    :: s == 1 -> t = 2; has = SOLE; goto holding
    :: s == 2 -> goto in_line
    :: else
    fi;
#elif defined(HELD)
    d_step { g = 8 * s + 1; attempt = 1; rounds = 1 }
    if
    :: s == 1 -> t = 1; has = C1; goto holding
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
#ifdef MIX
        wants = ((s == 1 && rounds > 0) -> SOLE : wants);
#endif
        d_step { rounds++; repeated = 0; has = 0 }
    }
attempt_anew:
    skip;
    d_step { attempt++; g = 8 * s + attempt; knows[s] = g; connected = EPOCH }
again:
#ifdef RETAKE
    if
    :: freed_with != 0 ->
        reacquire(HOME, s, g, freed_with, got);
        freed_with = 0;
        if
        :: got != 0 -> goto granted
        :: else
        fi
    :: else
    fi;
#endif
    if
    :: WANT(s) == SOLE -> acquire(HOME, s, g, got, whom)
    :: else -> w = WANT(s); take(HOME, s, g, w, got, whom); w = 0
    fi;
    atomic {
        if
        :: !trust[s] -> goto lost
#ifdef SEMAPHORE
        :: trust[s] && got == 0 && semaphore -> goto finished      /* refused */
#endif
        :: trust[s] && broken ->        /* find, and what it reads made durable */
            d_step {
                broken = 0; whom = 0;
                got = ((MINE(HOME, s, g) || HOLDS(HOME, s, g)) -> 1 : 0);
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

/* The ticket is drawn before the entry becomes visible. */
enqueue:
    skip;
#ifdef FAIR
    d_step { ticket[AT(HOME, s)] = next_ticket; place[AT(HOME, s)] = g; next_ticket++ }
#else
    d_step { e = EPOCH; got = next_ticket; next_ticket++ }
    d_step {
        if
        :: INTACT -> ticket[AT(HOME, s)] = got; place[AT(HOME, s)] = g
        :: else -> broken = 1
        fi;
        got = 0; e = 0
    }
    if
    :: broken -> broken = 0; goto attempt_anew
    :: else
    fi;
#endif

/* Checks its queue entry: when the enqueue has committed, and when it has reconnected. */
look_at_entry:
#ifdef SEMAPHORE
    skip;
    d_step {
        called[s] = 0;
        if
        :: semaphore && ticket[AT(HOME, s)] != 0 -> NO_ENTRY(HOME, s); knows[s] = 0
        :: else
        fi
    }
    if
    :: semaphore && knows[s] == 0 -> goto finished
    :: else
    fi;
#endif
    atomic {
        d_step {
            waiting[s] = 1;
            connected = EPOCH;
            if
            :: notified[s] == g
            :: notified[s] != g && !LIVE(s) -> got = 1
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] == 0 && (MINE(HOME, s, g) || HOLDS(HOME, s, g)) ->
                notified[s] = g; notified_token[s] = token[HOME]
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] == 0 && !(MINE(HOME, s, g) || HOLDS(HOME, s, g)) -> got = 2
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] != 0 && SERVABLE(HOME) -> due[s] = 1
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
#ifdef SEMAPHORE
    :: called[s] -> goto look_at_entry
#endif
#ifdef CRASH
    :: epoch != connected -> goto look_at_entry
#endif
    /* cancel waits for a grant that has the ticket. */
    :: atomic { cancels > 0 && notified[s] != g ->
                d_step {
                    cancels--;
                    waiting[s] = 0;
                    if
                    :: ticket[AT(HOME, s)] != 0 && place[AT(HOME, s)] == g ->
                        NO_ENTRY(HOME, s); knows[s] = 0; due[s] = 1;
                        FLUSH
                    :: else -> got = 1
                    fi
                }
                if
                :: got == 1 -> got = 0; has = WANT(s); goto release    /* it was served after all; given back */
                :: else -> goto next_round
                fi }
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
#ifdef WRONG_CLOCK
    :: atomic { FREE(HOME) && sole[HOME] != 0 && there[sole[HOME]] && !ended[sole[HOME]] && !due[s] && !at_work[s] ->
                due[s] = 1 }; goto in_line
#else
    :: end_expired(HOME, s); goto in_line
#endif
    :: d_step { POLLED(HOME, s) -> due[s] = 1 }; goto in_line
#ifdef WATERMARK
    /* Its entry was overtaken: reset_watermark, which is found by a poll as well. */
#ifndef WRONG_WATERMARK
    :: d_step { ticket[AT(HOME, s)] != 0 && ticket[AT(HOME, s)] <= served[HOME] && LOCKABLE(HOME) ->
                served[HOME] = ticket[AT(HOME, s)] - 1; due[s] = 1 }; goto in_line
#endif
#endif
    fi;

granted:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && WANT(s) != SOLE ->   /* it reads its hold, and flushes, before anybody learns of it */
            d_step {
                got = 0; whom = 0; notified[s] = 0; notified_token[s] = 0;
                if
                :: HOLDS(HOME, s, g) ->
                    FLUSH_READ;
                    has = WANT(s); t = htoken[AT(HOME, s)];
                    told(HOME, g, t)
                :: else
                fi
            }
            if
            :: has == 0 -> goto attempt_anew
            :: has != 0 && !taken_away[s] -> believe(HOME, s, has)
            :: else
            fi
        :: trust[s] && WANT(s) == SOLE ->
            if
            :: !taken_away[s] -> believe(HOME, s, ROOM)
            :: else
            fi;
            d_step { t = notified_token[s]; notified[s] = 0; notified_token[s] = 0; got = 0; whom = 0; has = SOLE }
        fi
    }
holding:
    if
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
    :: true
    fi;
    may_not_answer();
#ifdef FENCE
    if
    :: has == SOLE -> fence_sole()
    :: else -> fence_hold()
    fi;
#endif
#ifdef PROMISE
    if
    :: has == SOLE ->
        settle(HOME, s, g);
        if
        :: next != 0 ->
            doubt(s);
            pass_on(HOME, s, g, got, whom);
            d_step { next = 0; next_ticket_seen = 0; after = 0; kept = 0 }
            if
            :: got -> goto released
            :: else
            fi
        :: else
        fi
    :: else
    fi;
#endif

    if
    :: WANT(s) == UPGRADES && has == UPGRADES && !taken_away[s] -> goto upgrading
#ifdef LOWERS
    :: has == SOLE && !taken_away[s] -> goto lowering
#endif
    :: WANT(s) != UPGRADES || taken_away[s] -> goto release
    fi;

/* The hold is upgradeable, and believed so, until it is upgraded. */
upgrading:
#ifdef LATE
    if
    :: run late(s, g, 0) -> goto give_up_fence  /* the reply is lost: it gives all back */
    :: true
    fi;
#endif
    upgrade(HOME, s, g, got);
    atomic {
        if
        :: broken -> d_step { broken = 0; got = (MINE(HOME, s, g) -> token[HOME] : 0); FLUSH }
        :: else
        fi;
        if
        :: !trust[s] -> goto lost
        :: trust[s] && got != 0 -> d_step { t = got; got = 0 } goto upgraded
        :: trust[s] && got == 0 && !HOLDS(HOME, s, g) -> goto give_up_fence
        :: else
        fi
    }
    d_step {
        if
#ifdef WRONG_TAIL   /* the upgrade waits at the end of the queue */
        :: HOLDS(HOME, s, g) -> ticket[AT(HOME, s)] = next_ticket; place[AT(HOME, s)] = g; next_ticket++
#else
        :: HOLDS(HOME, s, g) -> ticket[AT(HOME, s)] = 1; place[AT(HOME, s)] = g
#endif
        :: else
        fi
    }
look_at_upgrade:
    skip;
    atomic {
        d_step {
            waiting[s] = 1;
            connected = EPOCH;
            if
            :: notified[s] == g
            :: notified[s] != g && !LIVE(s) -> got = 1
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] == 0 && MINE(HOME, s, g) ->
                notified[s] = g; notified_token[s] = token[HOME]
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] == 0 && !MINE(HOME, s, g) -> got = 2
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] != 0 && SERVABLE(HOME) -> due[s] = 1
            :: else
            fi
        }
        if
        :: got == 1 -> goto lost
        :: got == 2 && HOLDS(HOME, s, g) -> got = 0; waiting[s] = 0; goto upgrading
        :: got == 2 && !HOLDS(HOME, s, g) -> got = 0; waiting[s] = 0; goto give_up_fence
        :: else
        fi
    }
in_line_to_upgrade:
    if
    :: atomic { notified[s] == g ->
                d_step { waiting[s] = 0; t = notified_token[s]; notified[s] = 0; notified_token[s] = 0 } }; goto upgraded
    :: !trust[s] -> goto lost
#ifdef CRASH
    :: epoch != connected -> goto look_at_upgrade
#endif
    :: atomic { (cancels > 0 || taken_away[s]) && notified[s] != g ->
                d_step {
                    cancels = (taken_away[s] -> cancels : cancels - 1);
                    waiting[s] = 0;
                    if
                    :: ticket[AT(HOME, s)] != 0 -> NO_ENTRY(HOME, s); due[s] = 1; FLUSH
                    :: else
                    fi
                }
                goto give_up_fence }
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
    :: end_expired(HOME, s); goto in_line_to_upgrade
    :: d_step { POLLED(HOME, s) -> due[s] = 1 }; goto in_line_to_upgrade
    fi;

upgraded:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: else
        fi;
        has = UPGRADED;
        if
        :: !taken_away[s] -> believe(HOME, s, ROOM)
        :: else
        fi
    }
#ifdef FENCE
    close_fence();
    fence_sole();
#endif
    may_not_answer();
    if
    :: true -> goto release
#ifdef DOWNGRADES
    :: trust[s] && !taken_away[s] ->
downgrading:
        skip;
        d_step { mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> UPGRADES : 0) }
        downgrade(HOME, s, g, got);
        atomic {
            if
            :: broken -> broken = 0; goto downgrading
            :: else
            fi;
            d_step { got = 0; has = UPGRADES; due[s] = 1; t = htoken[AT(HOME, s)] }
        }
#ifdef FENCE
        fence_hold();
        close_fence();
#endif
#ifdef SHRINKS
        d_step { mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> SHARED : 0) }
#ifdef LATE
        if
        :: run late(s, g, 1)
        :: true -> shrink(HOME, s, g, UPGRADES, SHARED, got); d_step { got = 0; broken = 0; due[s] = 1 }
        fi
#else
        shrink(HOME, s, g, UPGRADES, SHARED, got);
        d_step { got = 0; broken = 0; due[s] = 1 }
#endif
#endif
#endif
    fi;
    goto release;

#ifdef LOWERS
lowering:
    skip;
    d_step { mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> SHARED : 0) }
#ifdef LATE
    if
#ifdef WRONG_ORDER  /* first what is counted */
    :: run late(s, g, 2) -> has = SHARED; goto release
#else
    :: run late(s, g, 2) -> goto release
#endif
    :: true
    fi;
#endif
    lower(HOME, s, g, SHARED, got);
    atomic {
        if
        :: broken -> broken = 0; goto lowering
        :: else
        fi;
        if
        :: got -> d_step { got = 0; has = SHARED; due[s] = 1 }
        :: else     /* lowered already, before a crash; or gone */
            d_step { has = (HOLDS(HOME, s, g) -> SHARED : SOLE) }
        fi
    }
    may_not_answer();
    goto release;
#endif

give_up_fence:
#ifdef FENCE
    close_fence();
#endif
    has = UPGRADED;

release:
    skip;
    doubt(s);
#ifdef FENCE
    close_fence();
#endif
    if
#ifdef WRONG_HAND   /* an upgraded hold is released as a sole one */
    :: has == SOLE || has == UPGRADED -> hand_over(HOME, s, g, got, whom)
    :: has != SOLE && has != UPGRADED -> give(HOME, s, g, got)
#else
    :: has == SOLE -> hand_over(HOME, s, g, got, whom)
    :: has != SOLE -> give(HOME, s, g, got)
#endif
    fi;
    if
    :: broken -> broken = 0; goto release
    :: else
    fi;
released:
    atomic {
        if
        :: got && whom == 0 ->  /* no waiter was served: check again after the commit */
#ifdef WRONG_4
            due[s] = has != SOLE || due[s];
#elif defined(WRONG_SILENT)
            due[s] = has == SOLE || due[s];
#else
            due[s] = 1;
#endif
#ifdef RETAKE
#ifdef WRONG_REMEMBERS  /* the token of a counted grant is remembered, too */
            freed_with = t;
#else
            freed_with = (has == SOLE -> t : 0);
#endif
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
#ifdef LATE
        /* What a late statement changes it looks for where that moves it: first what is sole, then what it was lowered to;
         * first what is counted, then what was upgraded. */
        if
        :: !got && !given_up && has != UPGRADES -> given_up = 1; has = (has == SOLE -> SHARED : SOLE); goto release
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
        d_step { knows[s] = 0; t = 0; given_up = 0; has = 0 }
        goto next_round
    }

#ifdef CRASH
/* No longer this grant's. If a crash lost the hand-over, the queue entry may be back, or about to be served: the client
 * deletes it first and then releases again (src/coordination/session/upkeep.cpp, give_up and resolve_unknown). */
give_up:
    atomic {
        given_up = 1;
        if
        :: place[AT(HOME, s)] == g && !UP(HOME, s) ->
            d_step {
                NO_ENTRY(HOME, s); due[s] = 1; knows[s] = 0; t = 0; given_up = 0; has = 0;
                FLUSH
            }
            goto next_round
        :: else -> goto release
        fi
    }
#endif

/* The trust window has passed: the client ends its session, and checks the queue afterwards. */
lost:
#ifdef FENCE
    close_fence();
#endif
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
#ifdef FENCE
    close_fence();
#endif
    d_step {
        waiting[s] = 0; knows[s] = 0; notified[s] = 0; notified_token[s] = 0; trust[s] = 0; dead[s] = 1
    }

finished:
    skip;
    d_step { g = 0; t = 0; got = 0; whom = 0; attempt = 0; rounds = 0; connected = 0; repeated = 0; has = 0;
             given_up = 0; broken = 0 }
}

#ifdef SEVERAL
/* --- a request for two names of any kind: all or none -------------------------------------------- */

/* One name of multi_take, in the snapshot. */
#define FITS_SNAPSHOT(l) (WEIGHT(l, s) == SOLE -> FREE(l) : (sole[l] == 0 && used[l] + WEIGHT(l, s) <= ROOM))
#define BEFORE_MINE(l, c) (STANDING(l, c) && ticket[AT(l, c)] < ticket[AT(l, s)])
#define IN_TURN(l) (queued -> (ticket[AT(l, s)] != 0 && !ANY(l, BEFORE_MINE)) : !ANY(l, STANDING))

/* A sole name is compared with its token, and skipped if it is locked, since the fence of a dead holder may have it; a
 * counted one decides under its lock, and is waited for. */
inline lock_row(x_l) {
    if
    :: WEIGHT(x_l, s) == SOLE ->
        atomic {
            if
            :: LOCKABLE(x_l) && token[x_l] == tokens[x_l] -> row_locked[x_l] = 1; mine[x_l] = 1
            :: else -> got = 0; skipped = !LOCKABLE(x_l)
            fi
        }
    :: else ->
        atomic {
            LOCKABLE(x_l);
            if
            :: sole[x_l] == 0 && used[x_l] + WEIGHT(x_l, s) <= ROOM -> row_locked[x_l] = 1; mine[x_l] = 1
            :: else -> got = 0
            fi
        }
    fi
}
inline take_locked(x_l) {
    new = token[x_l] + 1;
    if
    :: WEIGHT(x_l, s) == SOLE ->
        write_sole(x_l, s, g, new, 0);
        row_over[x_l] = 0; row_deadline[x_l] = 0; notified[s] = 0; notified_token[s] = 0
    :: else ->
        whose = WEIGHT(x_l, s);
        write_hold(x_l, s, g, new, whose);
        whose = 0;
        told(x_l, g, new);
        due[AT(x_l, s)] = 1     /* there may be room behind it */
    fi;
    new = 0;
    NO_ENTRY(x_l, s);
    check_sum(x_l)
}
inline multi_take() {
    d_step {
        called[s] = 0; skipped = 0;
        got = LIVE(s) && FITS_SNAPSHOT(0) && FITS_SNAPSHOT(1) && IN_TURN(0) && IN_TURN(1);
        tokens[0] = (got -> token[0] : 0); tokens[1] = (got -> token[1] : 0)
    }
    if
    :: got ->
#ifdef WRONG_PASSES     /* a pass for each kind: first what is sole */
        if
        :: WEIGHT(1, s) == SOLE -> lock_row(1)
        :: else -> lock_row(0)
        fi;
        if
        :: got && mine[1] -> lock_row(0)
        :: got && !mine[1] -> lock_row(1)
        :: else
        fi;
#else
        lock_row(0);
        if
        :: got -> lock_row(1)
        :: else
        fi;
#endif
        d_step {
            if
#ifdef WRONG_PART       /* takes what it could lock */
            :: mine[0] -> take_locked(0)
#else
            :: got -> take_locked(0)
#endif
            :: else
            fi;
            if
#ifdef WRONG_PART
            :: mine[1] -> take_locked(1)
#else
            :: got -> take_locked(1)
#endif
            :: else
            fi;
            if
            :: mine[0] -> row_locked[0] = 0; mine[0] = 0
            :: else
            fi;
            if
            :: mine[1] -> row_locked[1] = 0; mine[1] = 0
            :: else
            fi;
            part = !got && (sole[0] == s || hold[AT(0, s)] != 0 || sole[1] == s || hold[AT(1, s)] != 0);
            assert(!part);
            tokens[0] = 0; tokens[1] = 0
        }
    :: else
    fi
}
inline release_one(x_l) {
    d_step { mode[AT(x_l, s)] = 0 }
    if
    :: WEIGHT(x_l, s) == SOLE -> hand_over(x_l, s, g, got, whom)
    :: else -> give(x_l, s, g, got)
    fi;
    d_step { due[AT(x_l, s)] = due[AT(x_l, s)] || (got && whom == 0); got = 0; whom = 0 }
}

proctype both(byte s) {
    STATEMENT;
    byte g, whom, rounds;
    byte tokens[2];
    bit mine[2], got, queued, skipped;

#ifdef HELD
    d_step { g = 8 * s + 1; rounds = 1 }
    goto enqueue;
#else
    d_step { there[s] = 1; expires[s] = FAR; trust[s] = 1 }
#endif
next_round:
    skip;
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && rounds == ROUNDS -> goto finished
        :: else
        fi;
        d_step { rounds++; g = 8 * s + rounds; queued = 0 }
    }
    multi_take();
    if
    :: got -> goto granted
    :: else
    fi;
enqueue:
    skip;
    /* One ticket in all queues. */
#ifdef WRONG_SPLIT      /* one for each */
    d_step { ticket[AT(0, s)] = next_ticket; place[AT(0, s)] = g; next_ticket++ }
    d_step { ticket[AT(1, s)] = next_ticket; place[AT(1, s)] = g; next_ticket++; queued = 1 }
#else
    d_step { whom = next_ticket; next_ticket++ }
    d_step {
        ticket[AT(0, s)] = whom; place[AT(0, s)] = g; ticket[AT(1, s)] = whom; place[AT(1, s)] = g; whom = 0; queued = 1
    }
#endif
    multi_take();
    if
    :: got -> goto granted
    :: else ->
        /* The check that follows an enqueue: what is before it may be served. */
        d_step { due[AT(0, s)] = due[AT(0, s)] || SERVABLE(0); due[AT(1, s)] = due[AT(1, s)] || SERVABLE(1) }
        goto in_line
    fi;
again:
    multi_take();
    if
    :: got -> goto granted
    :: else
    fi;
in_line:
    if
    :: called[s] -> goto again
    :: !trust[s] -> goto lost
    /* A poll: the row that it skipped is not locked any more. */
    :: skipped && LOCKABLE(0) && LOCKABLE(1) -> goto again
    :: atomic { cancels > 0 ->
                d_step {
                    cancels--;
                    NO_ENTRY(0, s); NO_ENTRY(1, s); due[AT(0, s)] = 1; due[AT(1, s)] = 1
                }
                goto next_round }
    :: end_expired(0, s); goto in_line
    :: end_expired(1, s); goto in_line
    :: d_step { POLLED(0, s) -> due[AT(0, s)] = 1 }; goto in_line
    :: d_step { POLLED(1, s) -> due[AT(1, s)] = 1 }; goto in_line
    fi;
granted:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: else
        fi;
        got = 0;
        whose = (WEIGHT(0, s) < ROOM -> WEIGHT(0, s) : ROOM);
        believe(0, s, whose);
        whose = (WEIGHT(1, s) < ROOM -> WEIGHT(1, s) : ROOM);
        believe(1, s, whose);
        whose = 0
    }
    release_one(0);
    release_one(1);
    goto next_round;
lost:
    skip;
    d_step {
        called[s] = 0;
        END_SESSION(s);
        due[AT(0, s)] = 1; due[AT(1, s)] = 1
    }
finished:
    skip;
    d_step { g = 0; got = 0; queued = 0; skipped = 0; rounds = 0; broken = 0 }
}
#endif

/* The thread of the waiter loop, as far as it serves other waiters. */
proctype waiter_loop(byte s; byte l) {
    STATEMENT;
end:
    do
    :: atomic { due[AT(l, s)] && !dead[s] && !SERVABLE(l) -> due[AT(l, s)] = 0 }    /* checks, without effect */
    :: d_step { due[AT(l, s)] && !dead[s] && SERVABLE(l) -> due[AT(l, s)] = 0; at_work[AT(l, s)] = 1 }
        serve(l);
        at_work[AT(l, s)] = 0
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
        mode[AT(0, who)] = 0;
        mode[AT(NAMES - 1, who)] = 0
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
/* heartbeat. The clock is read after the row is locked. */
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
                mode[AT(HOME, s)] = 0
            }
        :: else
        fi;
        d_step { alive = 0; e = 0 }
    od
}
#endif

#ifdef CRASH
/* The server is killed once and restarts. All locks are released, statements in flight are lost. SOON: at once. */
proctype crash() {
    byte i;
    d_step {
        present[0] = d_present; token[0] = d_token; sole[0] = d_sole; grant[0] = d_grant; used[0] = d_used;
        promised[0] = d_promised; served[0] = d_served; floor = d_floor; settled = d_settled;
        row_deadline[0] = d_row_deadline; row_over[0] = d_row_over;
        row_fenced[0] = 0;
        i = 1;
        do
        :: i <= CLIENTS ->
            there[i] = d_there[i]; ended[i] = d_ended[i]; ticket[i] = d_ticket[i]; place[i] = d_place[i];
            more[i] = d_more[i]; hold[i] = d_hold[i]; hgrant[i] = d_hgrant[i]; htoken[i] = d_htoken[i];
            deadline[i] = d_deadline[i]; over[i] = d_over[i];
            hold_locked[i] = 0; hold_shared[i] = 0; fmode[i] = 0;
            beating[i] = 0; running[i] = 0; older[i] = 0;
            i++
        :: else -> break
        od;
        i = 0;
        epoch++
    }
}

/* A client's heartbeat thread after a reconnect: src/coordination/session/upkeep.cpp, compare_with_database. Queue entries
 * first. */
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
        held = (mode[AT(HOME, s)] != 0 -> knows[s] : 0);
        if
        :: trust[s] && ticket[AT(HOME, s)] != 0 && place[AT(HOME, s)] != knows[s] ->
            NO_ENTRY(HOME, s); due[s] = 1;
            FLUSH
        :: else
        fi
    }
    d_step {
        row = ((trust[s] && present[HOME] && sole[HOME] == s) -> grant[HOME] : 0);
        row = ((trust[s] && row == 0 && hold[AT(HOME, s)] != 0) -> hgrant[AT(HOME, s)] : row)
    }
    d_step {
        stray = trust[s] && row != 0 && row != knows[s];
        doubtful = trust[s] && row != 0 && row == knows[s] && row != held
    }
#ifndef WRONG_7     /* the rows are not compared, and the lost release is not repeated */
    if
    :: stray ->
        give(HOME, s, row, freed);
        if
        :: !freed -> hand_over(HOME, s, row, freed, whom)
        :: else
        fi;
        if
        :: freed && whom == 0 -> due[s] = 1
        :: else
        fi
    :: else
    fi;
    atomic {
        LOCKABLE(HOME);
        d_step {
            used[HOME] = used[HOME] - more[AT(HOME, s)];
            due[s] = due[s] || more[AT(HOME, s)] != 0;
            more[AT(HOME, s)] = 0;
            check_sum(HOME)
        }
    }
#endif
    d_step {
        if
        :: held != 0 && row != held && mode[AT(HOME, s)] != 0 && knows[s] == held -> mode[AT(HOME, s)] = 0
        :: else
        fi;
        held = 0; freed = 0; whom = 0
    }
#ifndef WRONG_COMPARE_ONCE  /* known, but not held: a release may have been in flight */
    if
    :: doubtful ->
        (knows[s] != row || mode[AT(HOME, s)] != 0 || !trust[s]);
        row = 0;
        goto compare
    :: else
    fi;
#endif
    d_step { row = 0; stray = 0; doubtful = 0; broken = 0 }
}
#endif

#ifdef REAPER
#ifdef WRONG_16_FLOOR   /* the floor is not raised before a row is deleted */
#define UNDER_FLOOR true
#else
#define UNDER_FLOOR (token[HOME] + LEFT_OUT(HOME, 0) <= settled)
#endif
#define IDLE (sole[HOME] == 0 && used[HOME] == 0)
/* src/housekeeping/reaping.cpp */
proctype reaper() {
    STATEMENT;
    byte round, s;
    do
    :: round == 3 -> break
    :: else ->
        round++;
        d_step {    /* sessions that have expired */
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
        serve(HOME);
        skip;
        d_step {    /* dead sole holders, holds, entries */
            if
            :: LOCKABLE(HOME) && present[HOME] && SOLE_DEAD(HOME) -> FREED(HOME)
            :: else
            fi;
            s = 1;
            do
            :: s <= CLIENTS ->
                if
                :: SWEEPABLE(HOME, s) && LOCKABLE(HOME) -> used[HOME] = used[HOME] - hold[AT(HOME, s)]; NO_HOLD(HOME, s)
                :: else
                fi;
                if
                :: ticket[AT(HOME, s)] != 0 && ended[s] -> NO_ENTRY(HOME, s)
                :: else
                fi;
                s++
            :: else -> break
            od;
            s = 0;
            check_sum(HOME)
        }
        /* Ended sessions that nothing names, and then they are deleted. */
        d_step {
            i = 1;
            do
            :: i <= CLIENTS ->
                seen[i] = there[i] && ended[i] && ticket[AT(HOME, i)] == 0 && sole[HOME] != i && hold[AT(HOME, i)] == 0;
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
        d_step {    /* settle_floor: no statement from before the raise still runs */
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
        d_step {    /* reap: entries as the snapshot shows them, */
            i = 1; s_waited = 0;
            do
            :: i <= CLIENTS -> s_waited = s_waited || ticket[AT(HOME, i)] != 0; i++
            :: else -> break
            od;
            i = 0; s_row = made[HOME];
#ifdef WRONG_REAP   /* and what is held as the snapshot shows it, with no look at the row once it is locked */
            s_mine = present[HOME] && IDLE
#endif
        }
        d_step {    /* the row as it is once it is locked */
            if
#ifdef WRONG_REAP
            :: !s_waited && s_mine && LOCKABLE(HOME) && present[HOME] && made[HOME] == s_row ->
#else
            :: !s_waited && LOCKABLE(HOME) && present[HOME] && made[HOME] == s_row && IDLE && UNDER_FLOOR ->
#endif
                FREED(HOME);
                present[HOME] = 0; token[HOME] = 0; promised[HOME] = 0; served[HOME] = 0; used[HOME] = 0;
                check_sum(HOME)
            :: else
            fi;
            s_waited = 0; s_mine = 0; s_row = 0
        }
        d_step {    /* idle rows, raise_floor */
            if
            :: settled == floor && present[HOME] && IDLE && !UNDER_FLOOR ->
                floor = token[HOME] + LEFT_OUT(HOME, 0);
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

#if defined(FORCE) || defined(REQUEST)
#ifndef VICTIM
#define VICTIM 1
#endif
/* An operator ends what VICTIM has, or asks for it: hold first, then the row if it names that grant, then the session, in
 * one transaction. Belief in it ends with a forced end as well (its one exception); one that is asked for is given up before
 * its deadline passes. */
proctype operator_() {
    STATEMENT;
    bit base;
    if
    :: atomic { hold[AT(HOME, VICTIM)] != 0 && !hold_locked[AT(HOME, VICTIM)] && hold_shared[AT(HOME, VICTIM)] == 0 ->
                hold_locked[AT(HOME, VICTIM)] = 1; base = 1 }
    :: hold[AT(HOME, VICTIM)] == 0 && sole[HOME] == VICTIM
    :: true -> goto away
    fi;
    atomic {
        LOCKABLE(HOME) || !(sole[HOME] == VICTIM);
        d_step {
#ifdef FORCE
            over[AT(HOME, VICTIM)] = base;
            row_over[HOME] = sole[HOME] == VICTIM;
            if
            :: base || sole[HOME] == VICTIM -> taken_away[VICTIM] = 1; mode[AT(HOME, VICTIM)] = 0
            :: else
            fi;
#else
            deadline[AT(HOME, VICTIM)] = base;
            row_deadline[HOME] = sole[HOME] == VICTIM;
#endif
            hold_locked[AT(HOME, VICTIM)] = 0;
            ok = base || sole[HOME] == VICTIM;
            base = 0;
            FLUSH
        }
    }
#ifdef REQUEST
    if
    :: ok ->
        d_step { taken_away[VICTIM] = 1; mode[AT(HOME, VICTIM)] = 0 }
        d_step {
            over[AT(HOME, VICTIM)] = over[AT(HOME, VICTIM)] || deadline[AT(HOME, VICTIM)];
            row_over[HOME] = row_over[HOME] || row_deadline[HOME];
            FLUSH
        }
    :: else
    fi;
#endif
    ok = 0;
    serve(HOME);
away:
    skip
}
#endif

#ifdef SEMAPHORE
/* create_semaphore: a free row without tickets. R3: the token rises. Whoever has put an entry there beside it is told, and
 * finds that the name is a semaphore's. */
proctype creator() {
    STATEMENT;
    byte any;
    d_step {
        read_rows(HOME);
        i = 1;
        do
        :: i <= CLIENTS -> any = any + ticket[i]; i++
        :: else -> break
        od;
        i = 0
    }
    atomic {
        LOCKABLE(HOME);
        d_step {
            if
            :: any == 0 && (!present[HOME] || (sole[HOME] == 0 && used[HOME] == 0)) ->
                semaphore = 1;
                made[HOME] = (present[HOME] -> made[HOME] : made[HOME] + 1);
#ifdef WRONG_R3
                token[HOME] = ABOVE(token[HOME], s_floor);
#else
                token[HOME] = ABOVE(token[HOME], s_floor) + 1 + LEFT_OUT(HOME, 0);
#endif
                present[HOME] = 1; promised[HOME] = 0;
                check_sum(HOME)
            :: else
            fi;
            any = 0;
            forget_rows()
        }
    }
#ifndef WRONG_UNTOLD
    d_step {
        i = 1;
        do
        :: i <= CLIENTS -> called[i] = semaphore && ticket[i] != 0; i++
        :: else -> break
        od;
        i = 0
    }
#endif
}
#endif

init {
    byte s;
    atomic {
#ifdef CHAIN
        /* On disk: 3 holds, and the next token is reserved for 1. Then 3 passed on to 1, asynchronously, with a promise to
         * the next if that is sole, and 1 was notified. Now 3 asks again. */
        d_step {
            s = 1;
            do
            :: s <= CLIENTS -> there[s] = 1; expires[s] = FAR; trust[s] = 1; s++
            :: else -> break
            od;
#ifdef LEFT
            expires[3] = PAST; trust[3] = 0; dead[3] = 1;
#endif
            present[0] = 1; token[0] = 1; sole[0] = 3; grant[0] = 25; promised[0] = PROMISED_TO(9);
            place[1] = 9; knows[1] = 9;
            place[2] = 17; knows[2] = 17; waiting[2] = 1; next_ticket = 4;
#ifdef BEFORE
            ticket[1] = 3; ticket[2] = 2
#else
            ticket[1] = 2; ticket[2] = 3
#endif
        }
        d_step { FLUSH }
        d_step {
            ticket[1] = 0; place[1] = 0;
            token[0] = 2; sole[0] = 1; grant[0] = 9; promised[0] = (WANT(2) == SOLE -> PROMISED_TO(17) : 0);
            top[0] = 2; top_grant[0] = 9; mode[1] = ROOM
        }
#elif defined(HELD)
        d_step {
            present[0] = 1; token[0] = 1; top[0] = 1; top_grant[0] = 9; made[0] = 1;
            if
            :: C1 == BOTH -> token[0] = 0; top[0] = 0; top_grant[0] = 0
            :: C1 == SOLE -> sole[0] = 1; grant[0] = 9; mode[1] = ROOM
            :: else -> hold[1] = C1; hgrant[1] = 9; htoken[1] = 1; used[0] = C1; mode[1] = C1
            fi;
            s = 1;
            do
            :: s <= CLIENTS -> there[s] = 1; expires[s] = FAR; trust[s] = 1; knows[s] = 8 * s + 1; s++
            :: else -> break
            od
        }
#endif
#ifdef SEVERAL
        d_step { present[0] = 1; made[0] = 1; present[1] = 1; made[1] = 1 }
#endif
#ifndef CHAIN
        d_step { FLUSH }
#endif
#ifdef SOON
        run crash();
        epoch == 1;
#endif
        s = 1;
        do
#ifdef LEFT
        :: s == 3 -> s++
        :: s <= CLIENTS && s != 3 ->
#else
        :: s <= CLIENTS ->
#endif
#ifdef SEVERAL
            if
            :: WANT(s) == BOTH -> run both(s); run waiter_loop(s, 1)
            :: else -> run client(s)
            fi;
#else
            run client(s);
#endif
            run waiter_loop(s, 0);
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
#if defined(CRASH) && !defined(SOON)
        run crash();
#endif
#ifdef REAPER
        run reaper();
#endif
#ifdef SEMAPHORE
        run creator();
#endif
#if defined(FORCE) || defined(REQUEST)
        run operator_()
#endif
    }
}

#ifdef SERVED
/* Under weak fairness: every waiter is notified, or learns that its session is lost. */
ltl served { [] (waiting[CLIENTS] -> <> !waiting[CLIENTS]) }
#endif
