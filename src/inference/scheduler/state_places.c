/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/state_places.h"

#include "scheduler/prefix_tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum place_kind { PLACE_FREE, PLACE_TAKEN, PLACE_STORED };

struct state_place {
    enum place_kind kind;
    uint32_t pins;
    uint64_t read_in;        /* the last step that reads it and passes no other */
    uint64_t passed_read_in; /* the last one that reads it and passes another, which may read it */
    uint64_t written_in;
    /* A stored state's; places or STATE_NONE. */
    struct state_prefix prefix;
    uint32_t behind_node; /* next behind the same node */
    uint32_t older;       /* neighbours by last use */
    uint32_t younger;
};

struct state_places {
    uint32_t place_count;
    uint32_t block_count;
    struct state_place *places; /* (place_count) */
    uint32_t *firsts; /* (block_count + 1) first stored state by node; PREFIX_ROOT's is last */
    uint32_t *free;   /* (free_count) a stack */
    uint32_t free_count;
    uint32_t stored_count;
    uint32_t oldest;
    uint32_t youngest;
    uint64_t evictions;
};

enum err state_places_open(struct state_places **ret_places, uint32_t place_count,
                           uint32_t block_count, struct error *error) {
    struct state_places *places = calloc(1, sizeof *places);
    if (!places) goto out_of_memory;
    places->places = calloc(place_count, sizeof *places->places);
    places->firsts = calloc((size_t)block_count + 1, sizeof *places->firsts);
    places->free = calloc(place_count, sizeof *places->free);
    if (!places->places || !places->firsts || !places->free) goto out_of_memory;
    for (uint32_t i = 0; i <= block_count; i++) places->firsts[i] = STATE_NONE;
    /* Filled backwards, so that place 0 is taken first and memory is touched in order. */
    for (uint32_t i = 0; i < place_count; i++) places->free[i] = place_count - 1 - i;
    places->place_count = places->free_count = place_count;
    places->block_count = block_count;
    places->oldest = places->youngest = STATE_NONE;
    *ret_places = places;
    return OK;

out_of_memory:
    state_places_close(places);
    return err_set(error, ERR_LIMIT, "scheduler: no memory for %u places of states", place_count);
}

void state_places_close(struct state_places *places) {
    if (!places) return;
    free(places->free);
    free(places->firsts);
    free(places->places);
    free(places);
}

static struct state_place *place_at(const struct state_places *places, uint32_t place) {
    assert(place < places->place_count);
    return &places->places[place];
}

static uint32_t *first_of(const struct state_places *places, uint32_t node) {
    assert(node == PREFIX_ROOT || node < places->block_count);
    return &places->firsts[node == PREFIX_ROOT ? places->block_count : node];
}

/* ---- the list by last use ---- */

static void list_remove(struct state_places *places, uint32_t place) {
    const struct state_place *at = place_at(places, place);
    if (at->older != STATE_NONE)
        places->places[at->older].younger = at->younger;
    else
        places->oldest = at->younger;
    if (at->younger != STATE_NONE)
        places->places[at->younger].older = at->older;
    else
        places->youngest = at->older;
}

static void list_add_youngest(struct state_places *places, uint32_t place) {
    struct state_place *at = place_at(places, place);
    at->older = places->youngest;
    at->younger = STATE_NONE;
    if (places->youngest != STATE_NONE)
        places->places[places->youngest].younger = place;
    else
        places->oldest = place;
    places->youngest = place;
}

void state_places_touch(struct state_places *places, uint32_t place) {
    assert(place_at(places, place)->kind == PLACE_STORED);
    list_remove(places, place);
    list_add_youngest(places, place);
}

/* ---- taking and storing ---- */

static bool is_touched(const struct state_place *place, struct state_steps steps) {
    const uint64_t touched[] = {place->read_in, place->passed_read_in, place->written_in};
    for (size_t i = 0; i < sizeof touched / sizeof touched[0]; i++)
        if (touched[i] == steps.composed || (steps.passed > 0 && touched[i] == steps.passed))
            return true;
    return false;
}

/* The place in the stack of free ones that can be taken, counted from its bottom; STATE_NONE. */
static uint32_t find_free(const struct state_places *places, struct state_steps steps) {
    for (uint32_t i = places->free_count; i-- > 0;)
        if (!is_touched(&places->places[places->free[i]], steps)) return i;
    return STATE_NONE;
}

static uint32_t find_oldest(const struct state_places *places, struct state_steps steps,
                            uint32_t but) {
    uint32_t at = places->oldest;
    while (at != STATE_NONE &&
           (at == but || places->places[at].pins > 0 || is_touched(&places->places[at], steps)))
        at = places->places[at].younger;
    return at;
}

bool state_places_can_take(const struct state_places *places, struct state_steps steps,
                           uint32_t but) {
    return find_free(places, steps) != STATE_NONE || find_oldest(places, steps, but) != STATE_NONE;
}

/* Takes a stored state off its node. */
static void forget(struct state_places *places, uint32_t place) {
    struct state_place *at = place_at(places, place);
    assert(at->kind == PLACE_STORED && at->pins == 0);
    uint32_t *link = first_of(places, at->prefix.node);
    while (*link != place) link = &places->places[*link].behind_node;
    *link = at->behind_node;
    list_remove(places, place);
    places->stored_count--;
    places->evictions++;
}

bool state_places_take(struct state_places *places, struct state_steps steps, uint32_t *ret_place) {
    const uint32_t index = find_free(places, steps);
    uint32_t place;
    if (index != STATE_NONE) {
        place = places->free[index];
        places->free[index] = places->free[--places->free_count];
    } else {
        place = find_oldest(places, steps, STATE_NONE);
        if (place == STATE_NONE) return false;
        forget(places, place);
    }
    place_at(places, place)->kind = PLACE_TAKEN;
    *ret_place = place;
    return true;
}

void state_places_free(struct state_places *places, uint32_t place) {
    assert(place_at(places, place)->kind == PLACE_TAKEN);
    place_at(places, place)->kind = PLACE_FREE;
    places->free[places->free_count++] = place;
}

void state_places_store(struct state_places *places, uint32_t place,
                        const struct state_prefix *prefix) {
    struct state_place *at = place_at(places, place);
    assert(at->kind == PLACE_TAKEN && prefix->tail_count <= STATE_TAIL_MAX);
    assert(state_places_find(places, prefix) == STATE_NONE);
    uint32_t *first = first_of(places, prefix->node);
    at->kind = PLACE_STORED;
    at->prefix = *prefix;
    at->behind_node = *first;
    *first = place;
    list_add_youngest(places, place);
    places->stored_count++;
}

void state_places_forget_node(struct state_places *places, uint32_t node) {
    for (uint32_t at; (at = *first_of(places, node)) != STATE_NONE;) {
        forget(places, at);
        place_at(places, at)->kind = PLACE_FREE;
        places->free[places->free_count++] = at;
    }
}

void state_places_pin(struct state_places *places, uint32_t place) {
    assert(place_at(places, place)->kind == PLACE_STORED);
    place_at(places, place)->pins++;
}

void state_places_unpin(struct state_places *places, uint32_t place) {
    assert(place_at(places, place)->pins > 0);
    place_at(places, place)->pins--;
}

/* ---- finding ---- */

uint32_t state_places_first(const struct state_places *places, uint32_t node) {
    return *first_of(places, node);
}

uint32_t state_places_next(const struct state_places *places, uint32_t place) {
    return place_at(places, place)->behind_node;
}

bool state_places_has_tail(const struct state_places *places, uint32_t place, uint64_t salt,
                           const int32_t *tail, uint32_t count, uint32_t *ret_tail_count) {
    const struct state_prefix *prefix = &place_at(places, place)->prefix;
    if (prefix->node == PREFIX_ROOT && prefix->salt != salt) return false;
    if (prefix->tail_count > count ||
        memcmp(prefix->tail, tail, prefix->tail_count * sizeof *tail) != 0)
        return false;
    *ret_tail_count = prefix->tail_count;
    return true;
}

uint32_t state_places_find(const struct state_places *places, const struct state_prefix *prefix) {
    uint32_t at = state_places_first(places, prefix->node), count;
    for (; at != STATE_NONE; at = state_places_next(places, at))
        if (state_places_has_tail(places, at, prefix->salt, prefix->tail, prefix->tail_count,
                                  &count) &&
            count == prefix->tail_count)
            break;
    return at;
}

/* ---- steps and counts ---- */

void state_places_note_read(struct state_places *places, uint32_t place, struct state_steps steps) {
    struct state_place *at = place_at(places, place);
    *(steps.passed > 0 ? &at->passed_read_in : &at->read_in) = steps.composed;
}

void state_places_note_written(struct state_places *places, uint32_t place,
                               struct state_steps steps) {
    place_at(places, place)->written_in = steps.composed;
}

uint64_t state_places_written_in(const struct state_places *places, uint32_t place) {
    return place_at(places, place)->written_in;
}

uint32_t state_places_free_count(const struct state_places *places) {
    return places->free_count;
}

uint32_t state_places_stored_count(const struct state_places *places) {
    return places->stored_count;
}

uint64_t state_places_evictions(const struct state_places *places) {
    return places->evictions;
}

uint32_t state_places_check(const struct state_places *places) {
    uint32_t counts[3] = {0, 0, 0}, pins = 0, listed = 0, older = STATE_NONE, behind = 0;
    for (uint32_t i = 0; i < places->place_count; i++) {
        const struct state_place *place = &places->places[i];
        counts[place->kind]++;
        pins += place->pins;
        assert(place->pins == 0 || place->kind == PLACE_STORED);
    }
    assert(counts[PLACE_FREE] == places->free_count);
    assert(counts[PLACE_STORED] == places->stored_count);
    for (uint32_t i = 0; i < places->free_count; i++)
        assert(places->places[places->free[i]].kind == PLACE_FREE);
    for (uint32_t at = places->oldest; at != STATE_NONE; at = places->places[at].younger) {
        const struct state_place *place = &places->places[at];
        assert(place->kind == PLACE_STORED && place->older == older);
        assert(state_places_find(places, &place->prefix) == at); /* the only one of its prefix */
        assert(listed < places->stored_count);                   /* else the list has a loop */
        listed++;
        older = at;
    }
    assert(listed == places->stored_count && places->youngest == older);
    for (uint32_t i = 0; i <= places->block_count; i++)
        for (uint32_t at = places->firsts[i]; at != STATE_NONE; behind++)
            at = places->places[at].behind_node;
    assert(behind == listed);
    return pins;
}
