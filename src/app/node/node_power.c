/* SPDX-License-Identifier: Apache-2.0 */
#include "node/node_power.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

#define NS_PER_S 1e9

void node_power_begin(struct node_power *ret_power) {
    ret_power->card_count = 0;
    ret_power->started_ns = ret_power->looked_ns = clock_monotonic_ns();
    energy_meter_open(&ret_power->meter, NULL);
}

static void look_at_card(struct node_power *power, const struct card_status *status,
                         int64_t now_ns) {
    double joules = status->values[CARD_ENERGY_JOULES];
    size_t i = 0;
    if (!status->is_up || isnan(joules)) return;
    while (i < power->card_count && strcmp(power->cards[i].uuid, status->uuid) != 0) i++;
    if (i == CARDS_MAX) return;
    struct node_power_card *card = &power->cards[i];
    /* A driver that starts again counts from 0. */
    if (i == power->card_count || joules < card->last_joules) {
        memcpy(card->uuid, status->uuid, sizeof card->uuid);
        card->first_joules = joules;
        card->first_ns = now_ns;
        if (i == power->card_count) power->card_count++;
    }
    card->last_joules = joules;
    card->last_ns = now_ns;
}

void node_power_look(struct node_power *power, struct node *node) {
    struct card_status cards[CARDS_MAX];
    power->looked_ns = clock_monotonic_ns();
    energy_meter_look(&power->meter);
    size_t count = node_cards(node, cards);
    for (size_t i = 0; i < count; i++) look_at_card(power, &cards[i], power->looked_ns);
}

double node_power_watts(const struct node_power *power) {
    double watts = 0, joules = energy_meter_joules(&power->meter);
    double seconds = (double)(power->looked_ns - power->started_ns) / NS_PER_S;
    bool is_known = !isnan(joules) && seconds > 0;
    if (is_known) watts += joules / seconds;
    for (size_t i = 0; i < power->card_count; i++) {
        const struct node_power_card *card = &power->cards[i];
        if (card->last_ns <= card->first_ns) continue;
        watts += (card->last_joules - card->first_joules) * NS_PER_S /
                 (double)(card->last_ns - card->first_ns);
        is_known = true;
    }
    return is_known ? watts : NAN;
}
