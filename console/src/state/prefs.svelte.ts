// What the person at this browser prefers: theme and language.

export type Theme = 'system' | 'light' | 'dark'
export type Language = 'en' | 'zh'

function stored(name: string): string | null {
  try {
    return localStorage.getItem(`punctual.${name}`)
  } catch {
    return null
  }
}

function store(name: string, value: string) {
  try {
    localStorage.setItem(`punctual.${name}`, value)
  } catch {
    // Private windows may have no storage; the choice then lasts as long as the page.
  }
}

const dark = window.matchMedia('(prefers-color-scheme: dark)')

class Prefs {
  theme = $state<Theme>(themeOf(stored('theme')))
  language = $state<Language>(languageOf(stored('language') ?? navigator.language))
  private systemDark = $state(dark.matches)

  constructor() {
    dark.addEventListener('change', (event) => (this.systemDark = event.matches))
  }

  /** What is shown in the end. */
  get isDark(): boolean {
    return this.theme === 'dark' || (this.theme === 'system' && this.systemDark)
  }

  setTheme(theme: Theme) {
    this.theme = theme
    store('theme', theme)
    this.apply()
  }

  setLanguage(language: Language) {
    this.language = language
    store('language', language)
    this.apply()
  }

  apply() {
    const root = document.documentElement
    root.lang = this.language === 'zh' ? 'zh-CN' : 'en'
    if (this.theme === 'system') delete root.dataset.theme
    else root.dataset.theme = this.theme
  }
}

function themeOf(text: string | null): Theme {
  return text === 'light' || text === 'dark' ? text : 'system'
}

function languageOf(text: string): Language {
  return text.toLowerCase().startsWith('zh') ? 'zh' : 'en'
}

export const prefs = new Prefs()
