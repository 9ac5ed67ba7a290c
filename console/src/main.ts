// Starts the console: styles, preferences, then the page.

import { mount } from 'svelte'

import './styles/tokens.css'
import './styles/base.css'
import './styles/controls.css'
import './styles/table.css'
import './styles/layout.css'
import App from './App.svelte'
import { prefs } from './state/prefs.svelte'
import { session } from './state/session.svelte'

prefs.apply()
void session.load()

const target = document.getElementById('app')
if (target) mount(App, { target })
