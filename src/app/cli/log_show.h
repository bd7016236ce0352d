/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* log_show: a decision log (dossier/decision_log.h) as text for a terminal, or as a page of HTML
 * without scripts, which prints on paper.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "json/json.h"

void log_show_text(struct buf *out, const json_t *log);
void log_show_html(struct buf *out, const json_t *log);
